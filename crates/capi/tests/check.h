/* What the test programs share: claims that end the program with their place, sockets to talk over, and
 * registrations in one line. To be included after <winsock2.h>. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a wait for something that must come may take, in milliseconds. It ends a program that is stuck, and no
 * other, however busy the machine is. */
#ifndef SOON
#define SOON 180000
#endif
/* After how many seconds a program is stuck as a whole. */
#define STUCK 1800
/* How long a test waits for an event that must not happen. Windows reports slightly later. */
#ifdef _WIN32
#define A_WHILE 20
#else
#define A_WHILE 10
#endif
/* The content of a result that the library must not touch. */
#define UNTOUCHED 0xDEADBEEFu

static inline void check_failed(const char *file, int line, const char *claim)
{
    fprintf(stderr, "%s:%d: does not hold: %s (GetLastError() is %u, errno is %d)\n", file, line, claim,
            (unsigned)GetLastError(), errno);
    exit(1);
}

static inline void check_same(const char *file, int line, const char *what, long long seen,
                              const char *wanted, long long expected)
{
    if (seen != expected) {
        fprintf(stderr, "%s:%d: %s is %lld, not %lld (%s); GetLastError() is %u\n", file, line, what, seen,
                expected, wanted, (unsigned)GetLastError());
        exit(1);
    }
}

/* The claim must hold. */
#define CHECK(claim) ((claim) ? (void)0 : check_failed(__FILE__, __LINE__, #claim))
/* Both numbers must be the same. */
#define CHECK_IS(seen, expected) \
    check_same(__FILE__, __LINE__, #seen, (long long)(seen), #expected, (long long)(expected))
/* The call must fail as a socket call does, with this code, which both functions return. */
#define CHECK_SOCKET_ERROR(call, code) \
    (WSASetLastError(0), CHECK_IS((call), SOCKET_ERROR), CHECK_IS(WSAGetLastError(), (code)), \
     CHECK_IS(GetLastError(), (code)))
/* The call must return FALSE, with this code. */
#define CHECK_FALSE(call, code) \
    (SetLastError(0), CHECK_IS((call), FALSE), CHECK_IS(GetLastError(), (code)))

#ifdef _WIN32
#include "check_windows.h"
#else
#include "check_linux.h"
#endif

/* Ends the program if it is stuck, and starts Winsock. */
static inline void start(void)
{
    WSADATA data;
    end_if_stuck(STUCK);
    CHECK_IS(WSAStartup(MAKEWORD(2, 2), &data), 0);
}

static inline int finish(void)
{
    CHECK_IS(WSACleanup(), 0);
    return 0;
}

/* Whether everything takes ten times as long: in Valgrind, which runs one thread at a time. */
static inline int is_slow(void)
{
    return getenv("TEST_RUNS_SLOWLY") != NULL;
}

/* How often something is tried that depends on the turns of threads: a few times, or often where TEST_RUNS_LONG is set. */
static inline int tries(int few, int many)
{
    return getenv("TEST_RUNS_LONG") != NULL ? many : few;
}

/* ---- sockets ---------------------------------------------------------------------------------- */

static inline struct sockaddr_in loopback(void)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* Binds to a free port of the loopback address. */
static inline struct sockaddr_in bind_to_loopback(SOCKET s)
{
    struct sockaddr_in address = loopback();
    int length = (int)sizeof address;
    CHECK_IS(bind(s, (struct sockaddr *)&address, (int)sizeof address), 0);
    CHECK_IS(getsockname(s, (struct sockaddr *)&address, &length), 0);
    CHECK_IS(length, sizeof address);
    return address;
}

static inline SOCKET tcp_socket(void)
{
    SOCKET s = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    CHECK(s != INVALID_SOCKET);
    return s;
}

static inline SOCKET udp_socket(void)
{
    SOCKET s = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    CHECK(s != INVALID_SOCKET);
    return s;
}

static inline SOCKET tcp_listener(struct sockaddr_in *address)
{
    SOCKET s = tcp_socket();
    *address = bind_to_loopback(s);
    CHECK_IS(listen(s, SOMAXCONN), 0);
    return s;
}

static inline SOCKET tcp_connected_to(const struct sockaddr_in *address)
{
    SOCKET s = tcp_socket();
    CHECK_IS(connect(s, (const struct sockaddr *)address, (int)sizeof *address), 0);
    return s;
}

/* Two ends of one connection. */
static inline void tcp_pair(SOCKET *one, SOCKET *other)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address);
    *one = tcp_connected_to(&address);
    *other = accept(listener, NULL, NULL);
    CHECK(*other != INVALID_SOCKET);
    CHECK_IS(closesocket(listener), 0);
}

/* An address at which no socket listens. */
static inline struct sockaddr_in an_address_that_refuses(SOCKET *keeps_it_free)
{
    *keeps_it_free = tcp_socket(); /* bound and not listening: a connect to it is refused */
    return bind_to_loopback(*keeps_it_free);
}

/* Aborts a connection: the other end is reset. */
static inline void abort_connection(SOCKET s)
{
    struct linger at_once;
    at_once.l_onoff = 1;
    at_once.l_linger = 0;
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_LINGER, (const char *)&at_once, sizeof at_once), 0);
    CHECK_IS(closesocket(s), 0);
}

static inline void set_nonblocking(SOCKET s)
{
    u_long on = 1;
    CHECK_IS(ioctlsocket(s, FIONBIO, &on), 0);
}

static inline void send_all(SOCKET s, const char *bytes, int count)
{
    while (count > 0) {
        int sent = (int)send(s, bytes, count, 0);
        CHECK(sent > 0);
        bytes += sent;
        count -= sent;
    }
}

static inline void receive_all(SOCKET s, char *bytes, int count)
{
    while (count > 0) {
        int received = (int)recv(s, bytes, count, 0);
        CHECK(received > 0);
        bytes += received;
        count -= received;
    }
}

static inline void send_to(SOCKET s, const char *bytes, int count, const struct sockaddr_in *address)
{
    CHECK_IS(sendto(s, bytes, count, 0, (const struct sockaddr *)address, (int)sizeof *address),
             count);
}

/* A datagram; binds the socket if it is not bound yet. */
static inline void send_to_itself(SOCKET s)
{
    struct sockaddr_in address = loopback();
    int length = (int)sizeof address;
    if (getsockname(s, (struct sockaddr *)&address, &length) != 0) {
        CHECK_IS(WSAGetLastError(), WSAEINVAL); /* Windows' code for an unbound socket */
    }
    if (address.sin_port == 0) {
        address = bind_to_loopback(s);
    }
    send_to(s, "x", 1, &address);
}

/* Reads until there is nothing, of a socket that does not block. */
static inline void drain(SOCKET s)
{
    char byte;
    while (recv(s, &byte, 1, 0) == 1) {
    }
    CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
}

/* ---- registrations ----------------------------------------------------------------------------- */

#if HAS_NOTIFICATIONS

static inline SOCK_NOTIFY_REGISTRATION change(SOCKET s, uintptr_t key, unsigned operation, unsigned filter,
                                              unsigned trigger)
{
    SOCK_NOTIFY_REGISTRATION registration;
    memset(&registration, 0, sizeof registration);
    registration.socket = s;
    registration.completionKey = (PVOID)key;
    registration.operation = (UINT8)operation;
    registration.eventFilter = (UINT16)filter;
    registration.triggerFlags = (UINT8)trigger;
    registration.registrationResult = UNTOUCHED;
    return registration;
}

/* Applies one change by a call that must succeed, and returns the result of the change. */
static inline DWORD apply(HANDLE port, SOCK_NOTIFY_REGISTRATION registration)
{
    CHECK_IS(ProcessSocketNotifications(port, 1, &registration, 0, 0, NULL, NULL), ERROR_SUCCESS);
    CHECK(registration.registrationResult != UNTOUCHED);
    return registration.registrationResult;
}

static inline DWORD enable(HANDLE port, SOCKET s, uintptr_t key, unsigned filter, unsigned trigger)
{
    return apply(port, change(s, key, SOCK_NOTIFY_OP_ENABLE, filter, trigger));
}

static inline DWORD disable(HANDLE port, SOCKET s)
{
    return apply(port, change(s, 0, SOCK_NOTIFY_OP_DISABLE, 0, 0));
}

static inline DWORD unregister(HANDLE port, SOCKET s)
{
    return apply(port, change(s, 0, SOCK_NOTIFY_OP_REMOVE, 0, 0));
}

#define LEVEL_ONCE (SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_ONESHOT)
#define LEVEL_ON (SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_PERSISTENT)
#define EDGE_ONCE (SOCK_NOTIFY_TRIGGER_EDGE | SOCK_NOTIFY_TRIGGER_ONESHOT)
#define EDGE_ON (SOCK_NOTIFY_TRIGGER_EDGE | SOCK_NOTIFY_TRIGGER_PERSISTENT)

#define FILTER_IN SOCK_NOTIFY_REGISTER_EVENT_IN
#define FILTER_OUT SOCK_NOTIFY_REGISTER_EVENT_OUT
#define FILTER_HANGUP SOCK_NOTIFY_REGISTER_EVENT_HANGUP

/* The registration ends, and its REMOVE packet is taken. */
#define END_REGISTRATION(port, s, key) \
    do { \
        CHECK_IS(unregister((port), (s)), ERROR_SUCCESS); \
        CHECK_NEXT((port), (key), SOCK_NOTIFY_EVENT_REMOVE); \
    } while (0)

/* Waits for one packet, and returns the code. */
static inline DWORD take_one(HANDLE port, DWORD milliseconds, OVERLAPPED_ENTRY *entry, UINT32 *received)
{
    return ProcessSocketNotifications(port, 0, NULL, milliseconds, 1, entry, received);
}

#else

/* The same by the other call. */
static inline DWORD take_one(HANDLE port, DWORD milliseconds, OVERLAPPED_ENTRY *entry, UINT32 *received)
{
    ULONG removed = 0;
    DWORD code = GetQueuedCompletionStatusEx(port, entry, 1, &removed, milliseconds, FALSE) ? 0 : GetLastError();
    *received = code == ERROR_SUCCESS ? removed : 0; /* without a packet the system may write 1 */
    return code;
}

#endif

/* ---- packets ------------------------------------------------------------------------------------ */

/* The next packet, which must come; returns its key. */
static inline uintptr_t next_at(const char *file, int line, HANDLE port, unsigned *events)
{
    OVERLAPPED_ENTRY entry;
    UINT32 received = UNTOUCHED;
    DWORD outcome;
    memset(&entry, 0xFF, sizeof entry);
    outcome = take_one(port, SOON, &entry, &received);
    check_same(file, line, "the wait", outcome, "a packet", ERROR_SUCCESS);
    check_same(file, line, "the count", received, "one packet", 1);
    *events = entry.dwNumberOfBytesTransferred; /* the result of SocketNotificationRetrieveEvents */
    return (uintptr_t)entry.lpCompletionKey;
}
#define NEXT(port, events) next_at(__FILE__, __LINE__, (port), (events))

/* The next packet must have this key, and these events exactly. */
#define CHECK_NEXT(port, key, expected) \
    do { \
        unsigned check_events; \
        CHECK_IS(NEXT((port), &check_events), (key)); \
        CHECK_IS(check_events, (expected)); \
    } while (0)

/* No packet comes within a while. */
static inline int is_silent(HANDLE port)
{
    OVERLAPPED_ENTRY entry;
    UINT32 received = UNTOUCHED;
    DWORD outcome = take_one(port, A_WHILE, &entry, &received);
    CHECK(outcome == WAIT_TIMEOUT || outcome == ERROR_SUCCESS);
    CHECK_IS(received, outcome == WAIT_TIMEOUT ? 0 : 1);
    if (received == 1) {
        fprintf(stderr, "a packet with key %#llx, events %#x\n",
                (unsigned long long)entry.lpCompletionKey,
                (unsigned)entry.dwNumberOfBytesTransferred);
    }
    return outcome == WAIT_TIMEOUT;
}

static inline HANDLE new_port(DWORD concurrency)
{
    HANDLE port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, concurrency);
    CHECK(port != NULL);
    return port;
}

#endif
