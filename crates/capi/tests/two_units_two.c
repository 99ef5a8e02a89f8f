/* The other half: the same headers in another order. It has main. */
#include <sal.h>
#include <cp_win32.h>
#include <completion_port.h>

#include <windows.h>
#include <mswsock.h>
#include <winsock2.h>

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

int main(void)
{
    HANDLE port;
    SOCKET s;
    OVERLAPPED_ENTRY entry;
    UINT32 received;
    int token;
    char byte;
    start();
    port = make_port();
    CHECK(port != NULL);
    s = udp_socket();
    bind_to_loopback(s);
    CHECK_IS(register_here(port, s, &token), ERROR_SUCCESS);
    CHECK_IS(ProcessSocketNotifications(port, 0, NULL, SOON, 1, &entry, &received), ERROR_SUCCESS);
    CHECK(entry.lpCompletionKey == (ULONG_PTR)&token);
    CHECK_IS(events_of(&entry), SOCK_NOTIFY_EVENT_OUT);
    CHECK_IS(SocketNotificationRetrieveEvents(&entry), SOCK_NOTIFY_EVENT_OUT);

    /* Both units have the same last error. */
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(receive_here(s, &byte), WSAEWOULDBLOCK);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
