/* cp_socket_poll.h: WSAPoll. Included by <winsock2.h>. */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_POLL_H
#define CP_SOCKET_POLL_H

#include <errno.h>
#include <stdlib.h>


/* There POLLIN includes POLLRDNORM, and POLLOUT is POLLWRNORM: each is the system's one bit for both here. */
#undef POLLRDNORM
#undef POLLWRNORM
#define POLLRDNORM POLLIN
#define POLLWRNORM POLLOUT
/* The system's header has these only if it is asked for more. */
#ifndef POLLRDBAND
#define POLLRDBAND 0x080
#define POLLWRBAND 0x200
#endif
#ifdef POLLRDHUP
#define CP_POLLRDHUP POLLRDHUP
#else
#define CP_POLLRDHUP 0x2000
#endif

/* The system's own has the same tag and another size: a SOCKET is not an `int`. */
#ifndef CP_SYSTEM_POLLFD
#define CP_SYSTEM_POLLFD
typedef struct pollfd cp_system_pollfd;
#endif
#ifndef CP_NO_SOCKET_CALLS
#define pollfd cp_wsa_pollfd
#endif

typedef struct cp_wsa_pollfd {
    SOCKET fd;
    SHORT events;
    SHORT revents;
} WSAPOLLFD, *PWSAPOLLFD, *LPWSAPOLLFD;

/* The events it accepts. POLLPRI is refused, as there: urgent data is POLLRDBAND, which Linux never
 * reports for a socket. */
#define CP_POLL_KNOWN (POLLIN | POLLRDBAND | POLLOUT)
#define CP_POLL_OF_FEW 64

/* Whether the socket receives urgent data in line with the rest: then it is data like any other. */
CP_INLINE int cp_has_urgent_inline(int descriptor) {
    int is_inline = 0;
    socklen_t size = sizeof is_inline;
    return cp_getsockopt(descriptor, SOL_SOCKET, SO_OOBINLINE, &is_inline, &size) == 0 && is_inline;
}

CP_INLINE int cp_wsa_poll(WSAPOLLFD *asked, ULONG count, INT timeout, cp_system_pollfd *polled) {
    uint64_t began = cp_clock();
    INT left = timeout < 0 ? -1 : timeout;
    ULONG at, invalid = 0;
    int found;
    for (at = 0; at < count; at++) {
        polled[at].fd = cp_descriptor(asked[at].fd);
        polled[at].revents = 0;
        /* POLLHUP reports the end of the peer's stream, whether or not it was requested. */
        polled[at].events = (SHORT)(asked[at].events | CP_POLLRDHUP);
        if (polled[at].fd >= 0 && (asked[at].events & ~CP_POLL_KNOWN))
            return cp_wsa_fails(WSAEINVAL);
        if ((asked[at].events & POLLRDBAND) && !cp_has_urgent_inline(polled[at].fd))
            polled[at].events = (SHORT)(polled[at].events | POLLPRI);
        invalid += polled[at].fd < 0;
    }
    /* Without one that is valid there is nothing to wait for. */
    if (invalid == count)
        left = 0;
    while ((found = poll(polled, count, left)) < 0 && errno == EINTR) {
        uint64_t gone = (cp_clock() - began) / 1000000U;
        if (timeout >= 0)
            left = gone >= (uint64_t)timeout ? 0 : timeout - (INT)gone;
    }
    if (found < 0)
        return cp_wsa_fails(cp_error_of_errno(errno));
    for (at = 0; at < count; at++) {
        SHORT told = polled[at].revents;
        if (polled[at].fd < 0)
            told = POLLNVAL;
        else if (told & POLLNVAL)
            invalid++;
        else if (told & CP_POLLRDHUP)
            told = (SHORT)((told & ~CP_POLLRDHUP) | POLLHUP);
        if (told & POLLPRI)
            told = (SHORT)((told & ~POLLPRI) | POLLRDBAND);
        asked[at].revents = told;
    }
    if (invalid == count)
        return cp_wsa_fails(WSAENOTSOCK);
    cp_set_last_error(0);
    return found;
}

/* An entry whose socket is INVALID_SOCKET is not counted; its `revents` becomes POLLNVAL. */
CP_INLINE int WSAAPI WSAPoll(LPWSAPOLLFD fdArray, ULONG fds, INT timeout) {
    cp_system_pollfd few[CP_POLL_OF_FEW];
    cp_system_pollfd *polled = few;
    int found;
    if ((uintptr_t)fdArray < 65536 || fds == 0) /* no memory there */
        return cp_wsa_fails(fds == 0 ? WSAEINVAL : WSAEFAULT);
    if (fds > CP_POLL_OF_FEW)
        polled = (cp_system_pollfd *)calloc(fds, sizeof *polled);
    if (!polled)
        return cp_wsa_fails(WSAENOBUFS);
    found = cp_wsa_poll(fdArray, fds, timeout, polled);
    if (polled != few)
        free(polled);
    return found;
}

#endif
