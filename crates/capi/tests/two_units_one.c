/* One half of a program in two units, each of which has all headers. This one makes; the other one uses. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <completion_port.h>
#include <cp_win32.h>
#include <sal.h>

#include "check.h"

#ifdef __cplusplus
extern "C" {
#endif
HANDLE make_port(void);
DWORD register_here(HANDLE port, SOCKET s, PVOID key);
int receive_here(SOCKET s, char *byte);
UINT32 events_of(OVERLAPPED_ENTRY *entry);
#ifdef __cplusplus
}
#endif

HANDLE make_port(void)
{
    return CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
}

DWORD register_here(HANDLE port, SOCKET s, PVOID key)
{
    return enable(port, s, (uintptr_t)key, FILTER_OUT, LEVEL_ONCE);
}

int receive_here(SOCKET s, char *byte)
{
    return (int)recv(s, byte, 1, 0);
}

UINT32 events_of(OVERLAPPED_ENTRY *entry)
{
    return SocketNotificationRetrieveEvents(entry);
}
