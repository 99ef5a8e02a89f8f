/* With CP_NO_SOCKET_CALLS the socket calls stay the system's; only what has no counterpart there is mapped. */
#define CP_NO_SOCKET_CALLS
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(claim) \
    do { \
        if (!(claim)) { \
            fprintf(stderr, "%s:%d: does not hold: %s (errno %d)\n", __FILE__, __LINE__, #claim, errno); \
            exit(1); \
        } \
    } while (0)

#include <sys/select.h>

/* The system's sets have their room. */
typedef char the_room_of_a_set_is_told[FD_SETSIZE == 8 * sizeof(fd_set) ? 1 : -1];

int main(void)
{
    HANDLE port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    SOCK_NOTIFY_REGISTRATION registration;
    OVERLAPPED_ENTRY entry;
    UINT32 received;
    char byte;
    alarm(1800);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(s >= 0 && port != NULL);
    CHECK(bind(s, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(getsockname(s, (struct sockaddr *)&address, &length) == 0);
    CHECK(fcntl(s, F_SETFL, O_NONBLOCK) == 0);
    SetLastError(12345);
    errno = 0;
    CHECK(recv(s, &byte, 1, 0) == -1);
    CHECK(errno == EAGAIN);
    CHECK(GetLastError() == 12345);

    memset(&registration, 0, sizeof registration);
    registration.socket = (SOCKET)s;
    registration.completionKey = &registration;
    registration.operation = SOCK_NOTIFY_OP_ENABLE;
    registration.eventFilter = SOCK_NOTIFY_REGISTER_EVENT_IN;
    registration.triggerFlags = SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_ONESHOT;
    CHECK(sendto(s, "x", 1, 0, (struct sockaddr *)&address, length) == 1);
    CHECK(ProcessSocketNotifications(port, 1, &registration, 180000, 1, &entry, &received) == ERROR_SUCCESS);
    CHECK(registration.registrationResult == ERROR_SUCCESS && received == 1);
    CHECK(entry.lpCompletionKey == (ULONG_PTR)&registration);
    CHECK(SocketNotificationRetrieveEvents(&entry) == SOCK_NOTIFY_EVENT_IN);
    CHECK(closesocket((SOCKET)s) == 0);
    CHECK(CloseHandle(port));
    return 0;
}
