/* A table of functions may have the names of the calls, as libraries have it that can be given others. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include "check.h"

typedef struct {
    int (*recv)(SOCKET s, char *buffer, int size, int flags);
    int (*send)(SOCKET s, const char *buffer, int size, int flags);
    SOCKET (*accept)(SOCKET s);
    int (*connect)(SOCKET s);
    int (*bind)(SOCKET s);
    int (*listen)(SOCKET s);
    int (*socket)(int family);
    int (*shutdown)(SOCKET s);
    int (*getsockopt)(SOCKET s);
    int (*setsockopt)(SOCKET s);
    int (*closesocket)(SOCKET s);
    int (*ioctlsocket)(SOCKET s, long command, u_long *argument);
    int (*select)(int a, int b, int c, int d, int e, int f);
} CALLS;

static int counted;

static int my_recv(SOCKET s, char *buffer, int size, int flags)
{
    counted++;
    return (int)recv(s, buffer, size, flags);
}

static int my_send(SOCKET s, const char *buffer, int size, int flags)
{
    counted++;
    return (int)send(s, buffer, size, flags);
}

static SOCKET my_accept(SOCKET s)
{
    counted++;
    return accept(s, NULL, NULL);
}

static int my_ioctl(SOCKET s, long command, u_long *argument)
{
    counted++;
    return ioctlsocket(s, command, argument);
}

static int my_other(SOCKET s)
{
    (void)s;
    return ++counted;
}

static int my_select(int a, int b, int c, int d, int e, int f)
{
    return a + b + c + d + e + f;
}

static int my_socket(int family)
{
    (void)family;
    return ++counted;
}

int main(void)
{
    CALLS calls = {my_recv,  my_send,  my_accept, my_other, my_other,    my_other,
                   my_socket, my_other, my_other,  my_other, closesocket, my_ioctl, my_select};
    CALLS *table = &calls;
    SOCKET near, far, listener;
    struct sockaddr_in address;
    u_long on = 1;
#ifndef __cplusplus
    ULONG off = 0;
#endif
    char byte = 0;
    start();
    tcp_pair(&near, &far);
    CHECK_IS(table->ioctlsocket(near, FIONBIO, &on), 0);
    CHECK_SOCKET_ERROR(table->recv(near, &byte, 1, 0), WSAEWOULDBLOCK);
    CHECK_IS(table->send(far, "x", 1, 0), 1);
    until(near, POLLIN);
    CHECK_IS(calls.recv(near, &byte, 1, 0), 1);
    CHECK_IS(byte, 'x');
    listener = tcp_listener(&address);
    CHECK_IS(table->ioctlsocket(listener, FIONBIO, &on), 0);
#ifndef __cplusplus
    /* In C the type of the argument is known through a table, too. */
    CHECK_IS(calls.ioctlsocket(listener, FIONBIO, &off), 0);
    counted--;
#ifndef _WIN32 /* where both types are one */
    CHECK(!is_nonblocking(listener));
#endif
    CHECK_IS(table->ioctlsocket(listener, FIONBIO, &on), 0);
    counted--;
#endif
    CHECK(table->accept(listener) == INVALID_SOCKET);
    CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
    CHECK_IS(table->connect(near) + table->bind(near) + table->listen(near) + table->socket(1), 7 + 8 + 9 + 10);
    CHECK_IS(table->shutdown(near) + table->getsockopt(near) + table->setsockopt(near), 11 + 12 + 13);
    CHECK_IS(counted, 13);
#if !defined __cplusplus && defined __STDC_VERSION__ && __STDC_VERSION__ >= 201112L
    {
        /* A compound literal has a comma, which separates arguments of a macro. */
        fd_set set;
        FD_ZERO(&set);
        FD_SET(near, &set);
        CHECK_IS(select(0, NULL, &set, NULL, &(struct timeval){0, 1000}), 1);
#ifndef _WIN32 /* where MinGW's declaration takes no constant */
        CHECK_IS(select(0, NULL, &set, NULL, (&(const struct timeval){0, 1000})), 1);
#endif
    }
#endif
    CHECK_IS(table->select(1, 2, 3, 4, 5, 6), 21);
    CHECK_IS(table->closesocket(near), 0);
    CHECK_IS(calls.closesocket(far), 0);
    CHECK_IS(table->closesocket(listener), 0);
    return finish();
}
