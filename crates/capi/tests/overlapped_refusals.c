/* Operations where the kernel does not do as usual: it refuses to watch a socket, or brings a stream in records. The
 * program has an epoll_ctl and a recvmsg of its own, which the library calls. */
#include <winsock2.h>
#include <mswsock.h>

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"
#include "overlapped.h"

#define KEY 11u
#define REGISTERED 22u
#define RECORD 5u
#ifndef TCP_ULP
#define TCP_ULP 31
#endif

/* How many additions of a socket to a set are refused from here on. */
static int refusals;
/* Each receive brings a record at most. */
static int has_records;

static HANDLE port;

#ifdef __cplusplus
#define NO_EXCEPTIONS throw()
extern "C" {
#else
#define NO_EXCEPTIONS
#endif
int epoll_ctl(int set, int operation, int descriptor, struct epoll_event *event) NO_EXCEPTIONS
{
    if (operation == EPOLL_CTL_ADD && refusals > 0) {
        refusals--;
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, set, operation, descriptor, event);
}

ssize_t recvmsg(int descriptor, struct msghdr *message, int flags)
{
    struct msghdr record = *message;
    struct iovec first;
    ssize_t received;
    if (!has_records || message->msg_iovlen == 0 || message->msg_iov[0].iov_len <= RECORD)
        return (ssize_t)syscall(SYS_recvmsg, descriptor, message, flags);
    first.iov_base = message->msg_iov[0].iov_base;
    first.iov_len = RECORD;
    record.msg_iov = &first;
    record.msg_iovlen = 1;
    received = (ssize_t)syscall(SYS_recvmsg, descriptor, &record, flags);
    message->msg_flags = record.msg_flags;
    return received;
}
#ifdef __cplusplus
}
#endif

/* What is registered is made anew with the first operation. */
static void a_registration_outlives_an_operation_that_cannot_begin(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    tcp_pair(&near, &far);
    CHECK_IS(enable(port, near, REGISTERED, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    refusals = 1;
    CHECK_SOCKET_ERROR(receive_into(near, &byte, 1, NULL, &overlapped), ERROR_NO_SYSTEM_RESOURCES);
    CHECK_IS(refusals, 0);
    CHECK(is_silent(port));
    send_all(far, "x", 1);
    CHECK_NEXT(port, REGISTERED, SOCK_NOTIFY_EVENT_IN);
    CHECK(is_silent(port));
    /* One that has reported stays disabled. */
    refusals = 1;
    CHECK_SOCKET_ERROR(receive_into(near, &byte, 1, NULL, &overlapped), ERROR_NO_SYSTEM_RESOURCES);
    CHECK(is_silent(port));
    CHECK_IS(enable(port, near, REGISTERED, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, REGISTERED, SOCK_NOTIFY_EVENT_IN);
    CHECK_IS(receive_into(near, &byte, 1, NULL, &overlapped), 0);
    close_both(near, far);
}

/* If it cannot be made anew either, its last packet says so. */
static void a_registration_that_is_lost_is_told(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    tcp_pair(&near, &far);
    CHECK_IS(enable(port, near, REGISTERED, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    refusals = 2;
    CHECK_SOCKET_ERROR(receive_into(near, &byte, 1, NULL, &overlapped), ERROR_NO_SYSTEM_RESOURCES);
    CHECK_IS(refusals, 0);
    CHECK_IS(enable(port, near, REGISTERED, FILTER_IN, LEVEL_ON), ERROR_INVALID_PARAMETER);
    CHECK_NEXT(port, REGISTERED, SOCK_NOTIFY_EVENT_REMOVE);
    CHECK_IS(unregister(port, near), ERROR_NOT_FOUND);
    CHECK_IS(enable(port, near, REGISTERED, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, REGISTERED, SOCK_NOTIFY_EVENT_OUT);
    close_both(near, far);
}

/* Where another layer lies on a stream, a short read does not say that nothing is left. */
static void a_stream_of_records_is_received_whole(void)
{
    SOCKET near, far;
    char bytes[64];
    OVERLAPPED overlapped = fresh(NULL);
    DWORD received = UNTOUCHED;
    int place;
    associated_pair(port, KEY, &near, &far);
    has_records = 1;
    /* Whether the kernel has that layer makes no difference here. */
    (void)setsockopt(near, IPPROTO_TCP, TCP_ULP, "tls", 3);
    send_all(far, "hello, world and all", 4 * RECORD);
    until(near, POLLIN);
    for (place = 0; place < 4; place++) {
        CHECK_IS(receive_into(near, bytes, sizeof bytes, &received, &overlapped), 0);
        CHECK_IS(received, RECORD);
        CHECK_ENDED(port, KEY, &overlapped, RECORD);
    }
    has_records = 0;
    close_both(near, far);
}

int main(void)
{
    start();
    port = new_port(1);
    a_registration_outlives_an_operation_that_cannot_begin();
    a_registration_that_is_lost_is_told();
    a_stream_of_records_is_received_whole();
    CHECK(CloseHandle(port));
    return finish();
}
