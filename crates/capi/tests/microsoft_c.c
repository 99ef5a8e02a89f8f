/* What the reference's compilers take for C, with the flags that pkg-config and CMake tell. */
#include <crtdbg.h>
#include <sdkddkver.h>
#include <winsock2.h>
#include <windows.h>

#include "check.h"

#pragma comment(lib, "ws2_32.lib")

typedef struct HEADER {
    WORD kind;
    WORD size;
} HEADER;

#ifdef __cplusplus
struct PACKET : HEADER, OVERLAPPED {
    BYTE bytes[8];
};
#else
/* A struct without a name: its members are those of the outer one. */
typedef struct PACKET {
    HEADER;
    OVERLAPPED;
    BYTE bytes[8];
} PACKET;
#endif

static __declspec(thread) int other;
__declspec(thread) static int own;
__declspec(align(64)) static char aligned[64];

__declspec(noinline) static unsigned __int64 __cdecl wide(__int32 number)
{
    return (unsigned __int64)number << 32;
}

static __forceinline int __stdcall doubled(int number)
{
    return 2 * number;
}

static DWORD WINAPI has_its_own(LPVOID unused)
{
    UNREFERENCED_PARAMETER(unused);
    own++;
    CHECK_IS(other, 0);
    return (DWORD)own;
}

int main(void)
{
    PACKET packet;
    HANDLE port, thread;
    DWORD bytes, code;
    ULONG_PTR key;
    LPOVERLAPPED overlapped;
    volatile char flag = 1;
    start();
    memset(&packet, 0, sizeof packet);
    packet.size = 8;
    packet.Offset = 7;
    port = new_port(0);
    CHECK(PostQueuedCompletionStatus(port, 1, 2, (LPOVERLAPPED)(void *)((char *)&packet + 8)));
    CHECK(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, INFINITE));
    CHECK_IS(overlapped->Offset, 7);
    CHECK_IS(wide(3), 0x300000000);
    CHECK_IS(doubled(4), 8);
    CHECK_IS((ULONG_PTR)aligned % 64, 0);
    own = other = 5;
    thread = CreateThread(NULL, 0, has_its_own, NULL, 0, NULL);
    CHECK_IS(WaitForSingleObject(thread, INFINITE), WAIT_OBJECT_0);
    CHECK(GetExitCodeThread(thread, &code));
    CHECK_IS(code, 1);
    CHECK_IS(own, 5);
#ifndef __cplusplus
    CHECK_IS(max(min(3, 4), 2), 3);
#endif
    CHECK_IS(RTL_NUMBER_OF(packet.bytes), 8);
    CHECK_IS(_countof(packet.bytes), 8);
    CHECK(SOMAXCONN_HINT(10) >= 10);
    CHECK_IS(InterlockedExchange8(&flag, 2), 1);
    CHECK_IS(flag, 2);
    _ASSERT(own == 5);
    _ASSERTE(sizeof(packet) > sizeof(OVERLAPPED));
    CHECK(SUCCEEDED(S_OK) && FAILED(E_FAIL) && FAILED(HRESULT_FROM_WIN32(ERROR_ACCESS_DENIED)));
    CHECK(_WIN32_WINNT >= _WIN32_WINNT_WIN10);
    CHECK_IS(CloseHandle(thread), TRUE);
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
