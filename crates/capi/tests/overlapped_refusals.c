/* Operations while the system behaves unusually: it refuses to watch a socket or to create another
 * thread, delivers a stream in records, or something happens just as it is called. The program
 * defines epoll_ctl, recvmsg, connect, sendfile and pthread_create, which the library calls. */
#include <winsock2.h>
#include <mswsock.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
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
/* The system's thread library can be found without another library since then. */
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 34)
#define HAS_OWN_THREADS
#ifndef RTLD_NEXT
#define RTLD_NEXT ((void *)-1)
#endif
#endif
#endif

/* How many additions of a socket to a set are refused from here on. */
static int refusals;
#ifdef HAS_OWN_THREADS
/* How many more threads are made, any number if it is below 0; and how many were refused. */
static int threads_left = -1, threads_refused;
#endif
/* Each receive brings a record at most. */
static int has_records;

/* What the program wants of a socket just when it is connected or sent to: that it blocks, or not, or nothing. */
static enum { NOTHING, BLOCKING, NONBLOCKING } wanted;
static int times_wanted;

static HANDLE port;

static void want(SOCKET s)
{
    u_long on = wanted == NONBLOCKING;
    if (wanted == NOTHING)
        return;
    times_wanted++;
    /* To the system it does not block, whatever the program wants. */
    CHECK_IS(fcntl((int)s, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    CHECK_IS(ioctlsocket(s, FIONBIO, &on), 0);
    CHECK_IS(fcntl((int)s, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

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

#ifdef HAS_OWN_THREADS
typedef int Maker(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument) NO_EXCEPTIONS
{
    void *found;
    Maker *of_the_system;
    if (threads_left == 0) {
        threads_refused++;
        return EAGAIN;
    }
    threads_left -= threads_left > 0;
    found = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&of_the_system, &found, sizeof found);
    return of_the_system(thread, how, run, argument);
}
#endif

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

ssize_t sendfile(int descriptor, int file, off_t *offset, size_t count) NO_EXCEPTIONS
{
    want((SOCKET)descriptor);
    return (ssize_t)syscall(SYS_sendfile, descriptor, file, offset, count);
}

/* The system's function, whose name means the library's here. */
int connect_of_the_system(int descriptor, const struct sockaddr *address, socklen_t size) __asm__("connect");
int connect_of_the_system(int descriptor, const struct sockaddr *address, socklen_t size)
{
    want((SOCKET)descriptor);
    return (int)syscall(SYS_connect, descriptor, address, size);
}
#ifdef __cplusplus
}
#endif

/* The registration is created again with the first operation. */
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

/* If it cannot be created again either, its last packet reports this. */
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

/* The same applies to a registration that moves to the connection of an accept. The accept itself
 * succeeds. */
static void a_registration_that_is_lost_to_a_connection_is_told(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), s = tcp_socket(), client;
    char place[2 * (sizeof address + 16)], byte;
    OVERLAPPED overlapped = fresh(NULL);
    associate(listener, port, KEY);
    CHECK_IS(enable(port, s, REGISTERED, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    CHECK_FALSE(AcceptEx(listener, s, place, 0, sizeof address + 16, sizeof address + 16, NULL, &overlapped),
                WSA_IO_PENDING);
    refusals = 1;
    client = tcp_connected_to(&address);
    until_ended(&overlapped);
    CHECK_IS(refusals, 0);
    CHECK_NEXT(port, REGISTERED, SOCK_NOTIFY_EVENT_REMOVE);
    CHECK_ENDED(port, KEY, &overlapped, 0);
    CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
    CHECK_IS(enable(port, s, REGISTERED + 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_all(client, "x", 1);
    CHECK_NEXT(port, REGISTERED + 1, SOCK_NOTIFY_EVENT_IN);
    receive_all(s, &byte, 1);
    close_both(s, client);
    closesocket(listener);
}

/* With another layer on a stream, a short read does not mean that no data remains. */
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

/* The program's last request decides whether a socket blocks, even while an operation needs it to
 * be non-blocking. */
static void what_the_program_says_of_blocking_is_not_lost(void)
{
    char name[64];
    HANDLE file;
    DWORD written = 0;
    int round;
    snprintf(name, sizeof name, "/tmp/cp-refusals-%d", (int)getpid());
    file = CreateFileA(name, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, FILE_FLAG_DELETE_ON_CLOSE, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(WriteFile(file, "hello", 5, &written, NULL));
    for (round = 0; round < 8; round++) {
        int blocks_before = round & 1, blocks_behind = round >> 1 & 1, sends = round >> 2 & 1;
        u_long mode = !blocks_before;
        struct sockaddr_in address, any = loopback();
        SOCKET listener = tcp_listener(&address), s = tcp_socket(), accepted;
        OVERLAPPED overlapped = fresh(NULL);
        char bytes[5];
        CHECK_IS(bind(s, (struct sockaddr *)&any, sizeof any), 0);
        associate(s, port, KEY);
        if (!sends)
            CHECK_IS(ioctlsocket(s, FIONBIO, &mode), 0);
        wanted = sends ? NOTHING : blocks_behind ? BLOCKING : NONBLOCKING;
        times_wanted = 0;
        CHECK_BEGINS(ConnectEx(s, (struct sockaddr *)&address, sizeof address, NULL, 0, NULL, &overlapped));
        CHECK_ENDED(port, KEY, &overlapped, 0);
        accepted = (SOCKET)accept(listener, NULL, NULL);
        CHECK(accepted != INVALID_SOCKET);
        if (sends) {
            CHECK_IS(ioctlsocket(s, FIONBIO, &mode), 0);
            wanted = blocks_behind ? BLOCKING : NONBLOCKING;
            memset(&overlapped, 0, sizeof overlapped);
            CHECK_BEGINS(TransmitFile(s, file, 5, 0, &overlapped, NULL, 0));
            CHECK_ENDED(port, KEY, &overlapped, 5);
            wanted = NOTHING;
            receive_all(accepted, bytes, 5);
            CHECK(memcmp(bytes, "hello", 5) == 0);
        }
        wanted = NOTHING;
        CHECK(times_wanted > 0);
        CHECK_IS(fcntl((int)s, F_GETFL) & O_NONBLOCK, blocks_behind ? 0 : O_NONBLOCK);
        close_both(s, accepted);
        closesocket(listener);
    }
    CHECK(CloseHandle(file));
}

#ifdef HAS_OWN_THREADS
typedef struct Called {
    OVERLAPPED overlapped;
    HANDLE done;
    DWORD thread;
} Called;

static void CALLBACK routine(DWORD code, DWORD bytes, LPOVERLAPPED overlapped)
{
    Called *called = CONTAINING_RECORD(overlapped, Called, overlapped);
    CHECK(code == ERROR_SUCCESS && bytes == 1);
    called->thread = GetCurrentThreadId();
    CHECK(SetEvent(called->done));
}

/* The first call begins the threads of the pool. If the system makes one of them only, that one does all the work. */
typedef struct Held {
    HANDLE begun, may_end, has_ended;
} Held;

static DWORD WINAPI holds_its_thread(LPVOID context)
{
    const Held *held = (const Held *)context;
    CHECK(SetEvent(held->begun));
    CHECK_IS(WaitForSingleObject(held->may_end, SOON), WAIT_OBJECT_0);
    CHECK(SetEvent(held->has_ended));
    return 0;
}

static DWORD WINAPI lets_it_go(LPVOID context)
{
    CHECK(SetEvent(((const Held *)context)->may_end));
    return 0;
}

/* The pool's only thread is blocked, and the system has refused another one. The next work tries again. */
static void a_thread_that_was_refused_is_started_later(void)
{
    Held held;
    held.begun = CreateEventA(NULL, TRUE, FALSE, NULL);
    held.may_end = CreateEventA(NULL, TRUE, FALSE, NULL);
    held.has_ended = CreateEventA(NULL, TRUE, FALSE, NULL);
    CHECK(QueueUserWorkItem(holds_its_thread, &held, 0));
    CHECK_IS(WaitForSingleObject(held.begun, SOON), WAIT_OBJECT_0);
    threads_left = -1;
    CHECK(QueueUserWorkItem(lets_it_go, &held, 0));
    CHECK_IS(WaitForSingleObject(held.has_ended, SOON), WAIT_OBJECT_0);
    CHECK(CloseHandle(held.begun) && CloseHandle(held.may_end) && CloseHandle(held.has_ended));
}

static void threads_that_are_there_do_the_work(void)
{
    enum { COUNT = 16 };
    SOCKET near, far;
    Called called[COUNT];
    char bytes[COUNT];
    int place;
    tcp_pair(&near, &far);
    threads_left = 1;
    CHECK(BindIoCompletionCallback((HANDLE)near, routine, 0));
    CHECK(threads_left == 0 && threads_refused > 0);
    for (place = 0; place < COUNT; place++) {
        called[place].overlapped = fresh(NULL);
        called[place].done = CreateEventA(NULL, TRUE, FALSE, NULL);
        CHECK_PENDING(receive_into(near, &bytes[place], 1, NULL, &called[place].overlapped));
    }
    send_all(far, "0123456789abcdef", COUNT);
    for (place = 0; place < COUNT; place++) {
        CHECK_IS(WaitForSingleObject(called[place].done, SOON), WAIT_OBJECT_0);
        CHECK_IS(called[place].thread, called[0].thread);
        CHECK_IS(bytes[place], "0123456789abcdef"[place]);
        CHECK(CloseHandle(called[place].done));
    }
    a_thread_that_was_refused_is_started_later();
    close_both(near, far);
}
#endif

int main(void)
{
    start();
    port = new_port(1);
#ifdef HAS_OWN_THREADS
    threads_that_are_there_do_the_work();
#else
    printf("SKIPPED threads_that_are_there_do_the_work: this C library takes no other pthread_create\n");
#endif
    a_registration_outlives_an_operation_that_cannot_begin();
    a_registration_that_is_lost_is_told();
    a_registration_that_is_lost_to_a_connection_is_told();
    a_stream_of_records_is_received_whole();
    what_the_program_says_of_blocking_is_not_lost();
    CHECK(CloseHandle(port));
    return finish();
}
