/* The result of an entry if the kernel refuses to watch another socket, and of a wait if it refuses
 * to report events. Rows C 16 and C 75. The library calls this program's own epoll_ctl and
 * epoll_wait. */
#include <winsock2.h>
#include <windows.h>

#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

/* The error that the next addition of a socket to a set gets, or 0. */
static int refusal;
static int refused;

#ifdef __cplusplus
extern "C"
#endif
int epoll_ctl(int set, int operation, int descriptor, struct epoll_event *event)
#ifdef __cplusplus
    throw()
#endif
{
    if (operation == EPOLL_CTL_ADD && refusal) {
        errno = refusal;
        refused++;
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, set, operation, descriptor, event);
}

/* The error that each wait for events gets, or 0. */
static int wait_refusal;

#ifdef __cplusplus
extern "C"
#endif
int epoll_wait(int set, struct epoll_event *events, int room, int milliseconds)
{
    if (wait_refusal) {
        errno = wait_refusal;
        return -1;
    }
    return (int)syscall(SYS_epoll_pwait, set, events, room, milliseconds, NULL, (size_t)0);
}

/* Each wait fails with this code, but a posted packet goes first. */
static void refuse_waits(HANDLE port, int error, DWORD code)
{
    OVERLAPPED_ENTRY entry;
    UINT32 received;
    int i;
    wait_refusal = error;
    for (i = 0; i < 2; i++) {
        CHECK_IS(take_one(port, 0, &entry, &received), code);
        CHECK_IS(PostQueuedCompletionStatus(port, 1, 2, NULL), TRUE);
        CHECK_IS(take_one(port, 0, &entry, &received), ERROR_SUCCESS);
        CHECK_IS(received, 1);
        CHECK_IS(entry.lpCompletionKey, 2);
    }
    CHECK_IS(take_one(port, 0, &entry, &received), code);
    wait_refusal = 0;
}

int main(void)
{
    static const struct {
        int system;
        DWORD code;
    } refusals[] = {
        {ENOSPC, ERROR_NO_SYSTEM_RESOURCES}, /* the limit of watched descriptors */
        {ENOMEM, ERROR_NOT_ENOUGH_MEMORY},
    };
    HANDLE port;
    SOCKET s;
    size_t i;
    start();
    port = new_port(1);
    s = udp_socket();
    for (i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        refusal = refusals[i].system;
        refused = 0;
        CHECK_IS(enable(port, s, i, FILTER_OUT, LEVEL_ON), refusals[i].code);
        CHECK(refused > 0);
        refusal = 0;
        /* It is as if it had not been asked for. */
        CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
        CHECK_IS(enable(port, s, 7, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
        CHECK_NEXT(port, 7, SOCK_NOTIFY_EVENT_OUT);
        END_REGISTRATION(port, s, 7);
    }
    CHECK_IS(enable(port, s, 8, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    refuse_waits(port, EPERM, ERROR_NOT_SUPPORTED);
    refuse_waits(port, EINTR, ERROR_INTERNAL_ERROR);
    CHECK_NEXT(port, 8, SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(port, s, 8);
    CHECK_IS(closesocket(s), 0);
    CHECK(CloseHandle(port));
    return finish();
}
