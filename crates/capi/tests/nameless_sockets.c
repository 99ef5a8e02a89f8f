/* Linked with a program: a system on which sockets have no SO_COOKIE, as they have none before Linux 4.12. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C"
#endif
int getsockopt(int descriptor, int level, int name, void *__restrict value, socklen_t *__restrict size)
#ifdef __cplusplus
    throw()
#endif
{
    enum { COOKIE = 57 };
    if (level == SOL_SOCKET && name == COOKIE) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return (int)syscall(SYS_getsockopt, descriptor, level, name, value, size);
}
