/* Sources that annotate their parameters compile, and mean the same. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include "check.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct _BUFFER {
    _Field_range_(0, 64) ULONG Length;
    _Field_size_bytes_(Length) BYTE *Bytes;
} BUFFER;

typedef _Success_(return != FALSE) BOOL (WINAPI *FILLER)(_In_ ULONG Value, _Inout_ BUFFER *Buffer);

_Success_(return != FALSE) BOOL WINAPI Fill(_In_ ULONG Value, _Inout_ BUFFER *Buffer);
_Check_return_ _Ret_maybenull_ HANDLE OpenPort(_In_range_(0, 64) DWORD Threads);
_Success_(return == 0) DWORD Register(_In_ HANDLE Port, _In_reads_(Count) const SOCKET *Sockets, _In_ UINT32 Count,
                                      _Out_writes_(Count) DWORD *Results);
_Success_(return) BOOL Next(_In_ HANDLE Port, _Out_writes_to_(Room, *Received) OVERLAPPED_ENTRY *Entries,
                            _In_ ULONG Room, _Out_ UINT32 *Received);
_Must_inspect_result_ BOOL Find(_In_z_ const char *Name, _Outptr_result_maybenull_ const char **Found,
                                _Out_opt_ DWORD *Code, _In_opt_ PVOID Context, _Reserved_ PVOID Nothing);

#ifdef __cplusplus
}
#endif

_Use_decl_annotations_
BOOL WINAPI Fill(ULONG Value, BUFFER *Buffer)
{
    _Analysis_assume_(Buffer->Length <= 64);
    memset(Buffer->Bytes, (int)Value, Buffer->Length);
    return TRUE;
}

_Use_decl_annotations_
HANDLE OpenPort(DWORD Threads)
{
    return CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, Threads);
}

_Use_decl_annotations_
DWORD Register(HANDLE Port, const SOCKET *Sockets, UINT32 Count, DWORD *Results)
{
    UINT32 i;
    for (i = 0; i < Count; i++) {
        Results[i] = enable(Port, Sockets[i], i, FILTER_OUT, LEVEL_ONCE);
    }
    return 0;
}

_Use_decl_annotations_
BOOL Next(HANDLE Port, OVERLAPPED_ENTRY *Entries, ULONG Room, UINT32 *Received)
{
    return ProcessSocketNotifications(Port, 0, NULL, SOON, Room, Entries, Received) == ERROR_SUCCESS;
}

_Use_decl_annotations_
BOOL Find(const char *Name, const char **Found, DWORD *Code, PVOID Context, PVOID Nothing)
{
    UNREFERENCED_PARAMETER(Context);
    UNREFERENCED_PARAMETER(Nothing);
    *Found = Name;
    if (Code != NULL) {
        *Code = ERROR_SUCCESS;
    }
    return TRUE;
}

int main(void)
{
    BYTE bytes[8];
    BUFFER buffer = {sizeof bytes, bytes};
    FILLER filler = Fill;
    HANDLE port;
    SOCKET s;
    DWORD result;
    OVERLAPPED_ENTRY entry;
    UINT32 received;
    const char *found;
    start();
    CHECK(filler(7, &buffer) && bytes[0] == 7 && bytes[7] == 7);
    port = OpenPort(2);
    CHECK(port != NULL);
    s = udp_socket();
    CHECK_IS(Register(port, &s, 1, &result), 0);
    CHECK_IS(result, ERROR_SUCCESS);
    CHECK(Next(port, &entry, 1, &received) && received == 1 && entry.lpCompletionKey == 0);
    CHECK(Find("name", &found, NULL, NULL, NULL) && strcmp(found, "name") == 0);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
