/* completion_port.h alone with the system's own sockets: every function under its cp_ name, which
 * clashes with nothing. */
#include <completion_port.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <ws2tcpip.h>
/* Calls on sockets are the system's. */
#define cp_socket (int)socket
#define cp_bind bind
#define cp_listen listen
#define cp_connect connect
#define cp_accept (int)accept
#define cp_getsockname getsockname
#define cp_getpeername getpeername
#define cp_send(socket, bytes, size, flags) send((socket), (const char *)(bytes), (int)(size), (flags))
#define cp_recv(socket, bytes, size, flags) recv((socket), (char *)(bytes), (int)(size), (flags))
/* The names of former memory models. */
#undef near
#undef far
#else
#include <netinet/in.h>
#include <unistd.h>
#endif

#define SOON 60000u

#define CHECK(claim) \
    do { \
        if (!(claim)) { \
            fprintf(stderr, "%s:%d: does not hold: %s (the last error is %u, errno %d)\n", __FILE__, __LINE__, \
                    #claim, (unsigned)cp_last_error(), errno); \
            exit(1); \
        } \
    } while (0)
#define CHECK_IS(seen, expected) CHECK((long long)(seen) == (long long)(expected))
#define CHECK_FAILS(call, code) (cp_set_last_error(0), fails((call) == 0, #call, (code), __LINE__))

static void fails(int has_failed, const char *call, uint32_t code, int line)
{
    if (!has_failed || cp_last_error() != code) {
        fprintf(stderr, "%s:%d: %s %s, the last error is %u, not %u\n", __FILE__, line, call,
                has_failed ? "has failed" : "has not failed", (unsigned)cp_last_error(), (unsigned)code);
        exit(1);
    }
}

static cp_registration change(int descriptor, uintptr_t key, unsigned operation, unsigned filter, unsigned trigger)
{
    cp_registration registration;
    memset(&registration, 0, sizeof registration);
    registration.socket = (uintptr_t)descriptor;
    registration.key = key;
    registration.operation = (uint8_t)operation;
    registration.filter = (uint16_t)filter;
    registration.trigger = (uint8_t)trigger;
    registration.result = 0xDEADBEEFu;
    return registration;
}

static uint32_t apply(cp_handle port, cp_registration registration)
{
    CHECK_IS(cp_process_notifications(port, 1, &registration, 0, 0, NULL, NULL), CP_SUCCESS);
    return registration.result;
}

static void pair(int *near, int *far)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    int listener = cp_socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(listener >= 0);
    CHECK_IS(cp_bind(listener, (struct sockaddr *)&address, size), 0);
    CHECK_IS(cp_getsockname(listener, (struct sockaddr *)&address, &size), 0);
    CHECK_IS(cp_listen(listener, 1), 0);
    *near = cp_socket(AF_INET, SOCK_STREAM, 0);
    CHECK(*near >= 0);
    CHECK_IS(cp_connect(*near, (struct sockaddr *)&address, size), 0);
    CHECK_IS(cp_getpeername(*near, (struct sockaddr *)&address, &size), 0);
    *far = cp_accept(listener, NULL, NULL);
    CHECK(*far >= 0);
    CHECK_IS(cp_close_socket(listener), 0);
}

static void the_reference_in_its_own_words(void)
{
    cp_handle port = cp_create_port(1);
    cp_registration registration;
    cp_entry entries[4];
    uint32_t received = 7, bytes = 7;
    uintptr_t key = 7;
    void *overlapped = &key;
    int near, far;
    char byte;

    CHECK(port != NULL && port != CP_NO_HANDLE);
    pair(&near, &far);
    registration = change(near, 11, CP_OP_ENABLE, CP_REGISTER_IN | CP_REGISTER_HANGUP,
                          CP_TRIGGER_LEVEL | CP_TRIGGER_ONE_SHOT);
    CHECK_IS(cp_process_notifications(port, 1, &registration, 20, 4, entries, &received), CP_ERROR_TIMEOUT);
    CHECK(registration.result == CP_SUCCESS && received == 0);
    CHECK_IS(cp_send(far, "x", 1, 0), 1);
    CHECK_IS(cp_process_notifications(port, 0, NULL, SOON, 4, entries, &received), CP_SUCCESS);
    CHECK_IS(received, 1);
    CHECK(entries[0].key == 11 && cp_events(&entries[0]) == CP_EVENT_IN && entries[0].overlapped == NULL);
    CHECK_IS(cp_recv(near, &byte, 1, 0), 1);
    CHECK_IS(apply(port, change(near, 12, CP_OP_ENABLE, CP_REGISTER_OUT, CP_TRIGGER_EDGE)), CP_SUCCESS);
    CHECK(cp_dequeue(port, &bytes, &key, &overlapped, SOON));
    CHECK(bytes == CP_EVENT_OUT && key == 11 && overlapped == NULL);
    CHECK_IS(apply(port, change(near, 0, CP_OP_DISABLE, 0, 0)), CP_SUCCESS);
    CHECK_IS(apply(port, change(near, 0, CP_OP_NONE, 0, 0)), CP_SUCCESS);
    CHECK_IS(apply(port, change(near, 0, CP_OP_REMOVE, 0, 0)), CP_SUCCESS);
    CHECK(cp_dequeue_many(port, entries, 4, &received, SOON, 0));
    CHECK(received == 1 && entries[0].key == 11 && cp_events(&entries[0]) == CP_EVENT_REMOVE);
    CHECK_IS(apply(port, change(near, 0, CP_OP_REMOVE, 0, 0)), CP_ERROR_NOT_FOUND);
    CHECK_IS(apply(port, change(near, 0, CP_OP_ENABLE, 0, CP_TRIGGER_ALL)), CP_ERROR_INVALID_PARAMETER);
    CHECK_IS(apply(port, change(-1, 0, CP_OP_ENABLE, 0, CP_TRIGGER_LEVEL)), CP_ERROR_NOT_A_SOCKET);

    CHECK(cp_post(port, 1, 2, &byte));
    CHECK(cp_dequeue(port, &bytes, &key, &overlapped, 0));
    CHECK(bytes == 1 && key == 2 && overlapped == &byte);
    CHECK_FAILS(cp_dequeue(port, &bytes, &key, &overlapped, 0), CP_ERROR_TIMEOUT);
    CHECK_FAILS(cp_dequeue_many(port, entries, 0, &received, 0, 1), CP_ERROR_INVALID_PARAMETER);
    CHECK_IS(cp_process_notifications(port, 1, NULL, 0, 0, NULL, NULL), CP_ERROR_FAULT);
    CHECK_IS(cp_process_notifications(port, 0, NULL, 1, 0, NULL, NULL), CP_ERROR_INVALID);

    CHECK(cp_create_io_completion_port((cp_handle)(uintptr_t)near, port, 5, 0) == port);
    CHECK_FAILS(cp_create_io_completion_port((cp_handle)(uintptr_t)near, port, 5, 0) != NULL,
                CP_ERROR_INVALID_PARAMETER);
    CHECK(cp_close_handle(port));
    CHECK_FAILS(cp_close_handle(port), CP_ERROR_INVALID_HANDLE);
    CHECK_FAILS(cp_post(port, 0, 0, NULL), CP_ERROR_INVALID_HANDLE);
    CHECK_FAILS(cp_dequeue(port, &bytes, &key, &overlapped, 0), CP_ERROR_INVALID_HANDLE);
    CHECK_IS(cp_process_notifications(port, 0, NULL, 0, 0, NULL, NULL), CP_ERROR_INVALID_HANDLE);
    CHECK_IS(cp_close_socket(near), 0);
    CHECK_IS(cp_close_socket(far), 0);
}

#ifndef _WIN32
static void socket_calls(void)
{
    int near, far, value = 1, error = -1;
    unsigned long word = 1;
    uint32_t milliseconds = 70;
    socklen_t size = sizeof value;
    struct sockaddr_in address;
    char bytes[4] = {0};

    pair(&near, &far);
    CHECK_IS(cp_ioctl_socket(near, 0x8004667eu, &word), 0);
    cp_set_last_error(0);
    errno = 0;
    CHECK_IS(cp_recv(near, bytes, sizeof bytes, 0), -1);
    CHECK_IS(cp_last_error(), CP_ERROR_WOULD_BLOCK);
    CHECK_IS(errno, EAGAIN);
    size = sizeof address;
    CHECK_IS(cp_recvfrom(near, bytes, sizeof bytes, 0, (struct sockaddr *)&address, &size), -1);
    CHECK_IS(cp_last_error(), CP_ERROR_WOULD_BLOCK);
    CHECK_IS(cp_sendto(far, "abc", 3, 0, NULL, 0), 3);
    do {
        word = ~0ul;
        CHECK_IS(cp_ioctl_socket(near, 0x4004667fu, &word), 0);
    } while (word < 3);
    CHECK_IS(word, 3);
    CHECK_IS(cp_setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &milliseconds, sizeof milliseconds), 0);
    CHECK_IS(cp_setsockopt(near, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value), 0);
    size = sizeof error;
    CHECK_IS(cp_getsockopt(near, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    CHECK_IS(error, 0);
    CHECK_IS(cp_shutdown(near, SHUT_WR), 0);
    CHECK_IS(cp_send(near, bytes, 1, 0), -1); /* and no SIGPIPE */
    CHECK_IS(cp_close_socket(near), 0);
    CHECK_IS(cp_close_socket(near), -1);
    CHECK_IS(cp_last_error(), CP_ERROR_NOT_A_SOCKET);
    CHECK_IS(cp_close_socket(far), 0);
    cp_forget(near);
    CHECK_IS(cp_set_checked(1), 0);
    CHECK_IS(cp_set_checked(0), 1);

    CHECK_IS(cp_error_of_errno(EAGAIN), CP_ERROR_WOULD_BLOCK);
    CHECK_IS(cp_error_of_errno(ENOTSOCK), CP_ERROR_NOT_A_SOCKET);
    CHECK_IS(cp_error_of_errno(EBADF), CP_ERROR_NOT_A_SOCKET);
    CHECK_IS(cp_error_of_errno(ECONNREFUSED), 10061);
    CHECK_IS(cp_error_of_errno(ECONNRESET), 10054);
    CHECK_IS(cp_error_of_errno(ETIMEDOUT), 10060);
    CHECK_IS(cp_error_of_errno(EADDRINUSE), 10048);
    CHECK_IS(cp_error_of_errno(EHOSTUNREACH), 10065);
    CHECK_IS(cp_error_of_errno(EINTR), 10004);
    CHECK_IS(cp_error_of_errno(EFAULT), CP_ERROR_FAULT);
    CHECK_IS(cp_error_of_errno(EINVAL), CP_ERROR_INVALID);
}
#endif

int main(void)
{
#ifdef _WIN32
    WSADATA data;
    CHECK_IS(WSAStartup(MAKEWORD(2, 2), &data), 0);
    the_reference_in_its_own_words();
    CHECK_IS(WSACleanup(), 0);
#else
    alarm(1800);
    the_reference_in_its_own_words();
    socket_calls();
#endif
    return 0;
}
