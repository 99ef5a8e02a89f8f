/*
 * cp_socket_select.h: select, and Winsock's sets: a count and an array. Included by <winsock2.h>.
 *
 * The system has both under the same names, and its header has already been included by others. So `fd_set` is a macro
 * here. `select` is declared as in the system's header, under another symbol. C++ gets an additional function. In C a
 * macro calls the function and converts the sets to the types of the system's declaration.
 */
/* Before the guard: a program may include this header first, and <winsock2.h> has it in its place. */
#include <winsock2.h>
#ifndef CP_SOCKET_SELECT_H
#define CP_SOCKET_SELECT_H

#ifndef CP_NO_SOCKET_CALLS

/* The size of a set: the program's definition of FD_SETSIZE before this header or before the system's. */
#ifdef CP_FD_SETSIZE_IS_KEPT
#pragma push_macro("CP_SYSTEM_FD_SETSIZE")
#undef CP_SYSTEM_FD_SETSIZE
#define CP_SYSTEM_FD_SETSIZE -1
#if FD_SETSIZE == -1
#define CP_FD_SETSIZE_IS_THE_SYSTEMS
#endif
#pragma pop_macro("CP_SYSTEM_FD_SETSIZE")
#ifdef CP_FD_SETSIZE_IS_THE_SYSTEMS
#undef FD_SETSIZE
#pragma pop_macro("FD_SETSIZE")
#endif
#endif
#ifndef FD_SETSIZE
#define FD_SETSIZE 64
#endif

typedef fd_set cp_system_fd_set;
#define fd_set cp_fd_set

typedef struct fd_set {
    u_int fd_count;
    SOCKET fd_array[FD_SETSIZE];
} fd_set, FD_SET, *PFD_SET, *LPFD_SET;

/* Whether the set contains the socket. */
CP_INLINE int WSAAPI __WSAFDIsSet(SOCKET s, fd_set *set) {
    const SOCKET *sockets = set->fd_array;
    u_int at;
    for (at = 0; at < set->fd_count; at++)
        if (sockets[at] == s)
            return 1;
    return 0;
}

/* A full set stays unchanged. `room` is the program's FD_SETSIZE. */
CP_INLINE void cp_fd_add(SOCKET s, fd_set *set, u_int room) {
    SOCKET *sockets = set->fd_array;
    if (!__WSAFDIsSet(s, set) && set->fd_count < room)
        sockets[set->fd_count++] = s;
}

CP_INLINE void cp_fd_remove(SOCKET s, fd_set *set) {
    SOCKET *sockets = set->fd_array;
    u_int at = 0;
    while (at < set->fd_count && sockets[at] != s)
        at++;
    if (at == set->fd_count)
        return;
    set->fd_count--;
    for (; at < set->fd_count; at++)
        sockets[at] = sockets[at + 1];
}

#undef FD_ZERO
#undef FD_SET
#undef FD_CLR
#undef FD_ISSET
#define FD_ZERO(set) ((void)(((fd_set *)(set))->fd_count = 0))
#define FD_SET(fd, set) cp_fd_add((SOCKET)(fd), (fd_set *)(set), FD_SETSIZE)
#define FD_CLR(fd, set) cp_fd_remove((SOCKET)(fd), (fd_set *)(set))
#define FD_ISSET(fd, set) __WSAFDIsSet((SOCKET)(fd), (fd_set *)(set))

#ifdef __cplusplus
extern "C" {
#endif
extern int select(int, cp_system_fd_set *, cp_system_fd_set *, cp_system_fd_set *, struct timeval *)
    __asm__("cp_select");
#ifdef __cplusplus
}

/* The compiler prefers the plain function to a template if both match, which happens if all sets are NULL. */
#if __cplusplus >= 201103L
template <int = 0>
#endif
inline int select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, const struct timeval *timeout) {
    return cp_select(nfds, readfds, writefds, exceptfds, timeout);
}
#elif defined __STDC_VERSION__ && __STDC_VERSION__ >= 201112L
/* The program may pass one set for two, which the system's declaration excludes. A compiler that noticed would warn. */
CP_INLINE void *cp_set_of_select(uintptr_t set) {
    return (void *)set;
}
#define CP_SET_OF_SELECT(set) _Generic((set), fd_set *: cp_set_of_select((uintptr_t)(set)), default: (set))
#define CP_TIME_OF_SELECT(time) \
    _Generic((time), const struct timeval *: (void *)(uintptr_t)(time), default: (time))
#define CP_SELECT_OF_FIVE(nfds, readfds, writefds, exceptfds, timeout)                  \
    nfds, CP_SET_OF_SELECT(readfds), CP_SET_OF_SELECT(writefds), CP_SET_OF_SELECT(exceptfds), \
        CP_TIME_OF_SELECT(timeout)
/* The time is a compound literal, whose comma makes it two arguments. */
#define CP_SELECT_OF_SIX(nfds, readfds, writefds, exceptfds, begin, end)                \
    nfds, CP_SET_OF_SELECT(readfds), CP_SET_OF_SELECT(writefds), CP_SET_OF_SELECT(exceptfds), begin, end
/* With any other number of arguments it is a member of that name. */
#define CP_SELECT_OF_OTHERS(...) __VA_ARGS__
#define CP_NINTH_OF(a, b, c, d, e, f, g, h, ninth, ...) ninth
#define CP_SELECT_BY_COUNT(...)                                                                        \
    CP_NINTH_OF(__VA_ARGS__, CP_SELECT_OF_OTHERS, CP_SELECT_OF_OTHERS, CP_SELECT_OF_SIX,               \
                CP_SELECT_OF_FIVE, CP_SELECT_OF_OTHERS, CP_SELECT_OF_OTHERS, CP_SELECT_OF_OTHERS,      \
                CP_SELECT_OF_OTHERS, CP_SELECT_OF_OTHERS, 0)
#define select(...) select(CP_SELECT_BY_COUNT(__VA_ARGS__)(__VA_ARGS__))
#endif

#else
typedef fd_set FD_SET, *PFD_SET, *LPFD_SET;
#endif

#endif
