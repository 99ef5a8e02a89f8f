/* What an entry gets where the kernel refuses to watch one more socket. Row C 16. The program has an
 * epoll_ctl of its own, which the library calls. */
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
    CHECK_IS(closesocket(s), 0);
    CHECK(CloseHandle(port));
    return finish();
}
