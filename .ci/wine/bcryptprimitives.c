/* A DLL that programs made by Rust load, and that Wine has since version 8.11: random numbers. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG); /* RtlGenRandom of advapi32 */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE place, SIZE_T size)
{
    while (size > 0) {
        ULONG part = size > 0x10000000 ? 0x10000000 : (ULONG)size;
        if (!SystemFunction036(place, part)) {
            return FALSE;
        }
        place += part;
        size -= part;
    }
    return TRUE;
}
