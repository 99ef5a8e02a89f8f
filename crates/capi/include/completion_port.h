/*
 * completion_port.h: an I/O completion port shared by any number of threads.
 *
 * A port is a queue of packets. It receives the events of registered sockets and the packets that
 * threads post. Each packet goes to one thread. At most as many threads as the port's concurrency
 * value process packets at the same time. The model is the I/O completion port of Windows, which
 * this header calls the reference, with its socket state notifications. The library runs on Linux,
 * and on Windows for systems that lack these notifications. docs/SEMANTICS.md has every rule,
 * and crates/capi/tests/CASES.txt each case of this library.
 *
 * This header is C11 and C++17, includes no system headers except the three below, and declares
 * only names that begin with cp_ or CP_. compat/include has the same functions under the
 * reference's names: <winsock2.h>, <mswsock.h>, <windows.h>. On Windows this header includes the
 * system's <winsock2.h> and <windows.h>, and <completion_port_windows.h>, which describes the
 * differences there: "descriptor" below means a socket, and the part from "Descriptors that are
 * closed" on is for Linux only.
 *
 * THREADS  Any thread may call any function at any time. Signal handlers may call only cp_close,
 *          cp_dup2, cp_dup3 and cp_close_range.
 *
 * HANDLES  A handle names a port. It is a number in the shape of a pointer, never the address of
 *          anything, and every call looks it up. A closed or unknown handle fails with
 *          CP_ERROR_INVALID_HANDLE and has no other effect. No handle is used twice.
 *
 * ERRORS   A function that returns a cp_bool returns 0 on failure; cp_last_error then returns the
 *          code. cp_process_notifications and cp_peek return the code itself and leave the last
 *          error unchanged. Successful calls leave it unchanged too, except for cp_setsockopt. The
 *          codes are the reference's.
 *
 * FORK     In a forked child, the ports of the parent are refused with CP_ERROR_INVALID_HANDLE. The
 *          child can close them. It can create ports, and register inherited descriptors or
 *          associate them with those ports. No function hangs in the child, whatever the parent's
 *          other threads were doing.
 *
 *
 *     cp_handle port = cp_create_port(0);
 *     cp_registration client = {
 *         .socket = (uintptr_t)descriptor, .key = (uintptr_t)state,
 *         .filter = CP_REGISTER_IN | CP_REGISTER_HANGUP,
 *         .operation = CP_OP_ENABLE, .trigger = CP_TRIGGER_LEVEL | CP_TRIGGER_ONE_SHOT,
 *     };
 *     cp_entry packets[64];
 *     uint32_t count;
 *     uint32_t code = cp_process_notifications(port, 1, &client, CP_INFINITE, 64, packets, &count);
 *     if (code == CP_SUCCESS && client.result == CP_SUCCESS)
 *         for (uint32_t i = 0; i < count; i++)
 *             handle((struct state *)packets[i].key, cp_events(&packets[i]));
 */
#ifndef CP_COMPLETION_PORT_H
#define CP_COMPLETION_PORT_H

#include <stddef.h>
#include <stdint.h>
/* Windows itself. Ported sources may define _WIN32 on Linux as well. */
#if defined(_WIN32) && !defined(__unix__)
#define CP_ON_WINDOWS 1
#endif
#ifdef CP_ON_WINDOWS
#include <winsock2.h>
#include <windows.h>
#else
#include <sys/socket.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The version of this header. CP_VERSION is a single number that increases with each version:
 *
 *     #if CP_VERSION >= CP_VERSION_NUMBER(0, 2, 0)
 */
#define CP_VERSION_MAJOR 0
#define CP_VERSION_MINOR 1
#define CP_VERSION_PATCH 0
#define CP_VERSION_NUMBER(major, minor, patch) ((major) * 1000000L + (minor) * 1000L + (patch))
#define CP_VERSION CP_VERSION_NUMBER(CP_VERSION_MAJOR, CP_VERSION_MINOR, CP_VERSION_PATCH)

/* ---- Types ---------------------------------------------------------------------------------- */

/* A port, or another object of this library. */
typedef void *cp_handle;

/* 0 on failure, 1 on success. */
typedef int cp_bool;

/* No handle. */
#define CP_NO_HANDLE ((cp_handle)(intptr_t)-1)

/* A timeout in milliseconds: wait without a limit. */
#define CP_INFINITE UINT32_C(0xFFFFFFFF)

/*
 * A change to a socket's registration, and the result of the change. 24 bytes.
 */
typedef struct cp_registration {
    uintptr_t socket;  /* the descriptor's number */
    uintptr_t key;     /* returned in packets; used only when the registration is created */
    uint16_t filter;   /* events to report: CP_REGISTER_... */
    uint8_t operation; /* what to do: one of CP_OP_... */
    uint8_t trigger;   /* how to report: CP_TRIGGER_... */
    uint32_t result;   /* set by the call: CP_SUCCESS, or the reason for refusing the change */
} cp_registration;

/*
 * A packet. 32 bytes.
 */
typedef struct cp_entry {
    uintptr_t key;    /* key of the registration or association, or the posted key */
    void *overlapped; /* posted pointer, or the operation's; NULL for socket events */
    uintptr_t internal; /* status of an operation, as in the reference; otherwise 0 */
    uint32_t bytes;   /* socket events (CP_EVENT_...), or the posted or transferred number */
} cp_entry;

/* The events that a registration can request. Errors and removals are always reported. Requesting
 * them is allowed and has no effect. With CP_REGISTER_NONE, nothing else is reported. */
#define CP_REGISTER_NONE 0x00
#define CP_REGISTER_IN 0x01
#define CP_REGISTER_OUT 0x02
#define CP_REGISTER_HANGUP 0x04
#define CP_REGISTER_ALL 0x07

/* The events that a packet reports. */
#define CP_EVENT_IN 0x01     /* a read would not block, or a connection can be accepted */
#define CP_EVENT_OUT 0x02    /* a write would not block, or a connect has finished */
#define CP_EVENT_HANGUP 0x04 /* the peer has closed or aborted the stream, or its sending half */
#define CP_EVENT_ERR 0x40    /* something failed: SO_ERROR or the next call returns the error */
#define CP_EVENT_REMOVE 0x80 /* the registration has ended: this is its last packet */
#define CP_EVENT_ALL 0xC7

/* What to do with a registration: exactly one of these. */
#define CP_OP_NONE 0x00
#define CP_OP_ENABLE 0x01
#define CP_OP_DISABLE 0x02
#define CP_OP_REMOVE 0x04

/* How to report: exactly one of LEVEL and EDGE, and at most one of ONE_SHOT and PERSISTENT.
 * PERSISTENT is the default. Whatever the trigger, ENABLE reports the conditions that hold at that
 * time. */
#define CP_TRIGGER_ONE_SHOT 0x01   /* any packet disables the registration */
#define CP_TRIGGER_PERSISTENT 0x02 /* the registration stays enabled */
#define CP_TRIGGER_LEVEL 0x04      /* as long as a condition holds */
#define CP_TRIGGER_EDGE 0x08       /* when a condition begins to hold; read until it would block */
#define CP_TRIGGER_ALL 0x0F

/* Codes. */
#define CP_SUCCESS UINT32_C(0)
#define CP_ERROR_INVALID_HANDLE UINT32_C(6)
#define CP_ERROR_NOT_ENOUGH_MEMORY UINT32_C(8)
#define CP_ERROR_INVALID_PARAMETER UINT32_C(87)
#define CP_ERROR_TIMEOUT UINT32_C(258)
#define CP_ERROR_ABANDONED UINT32_C(735)
#define CP_ERROR_NOT_FOUND UINT32_C(1168)
#define CP_ERROR_INTERNAL UINT32_C(1359)
#define CP_ERROR_NO_RESOURCES UINT32_C(1450)
#define CP_ERROR_FAULT UINT32_C(10014)
#define CP_ERROR_INVALID UINT32_C(10022)
#define CP_ERROR_WOULD_BLOCK UINT32_C(10035)
#define CP_ERROR_NOT_A_SOCKET UINT32_C(10038)

/* ---- Ports ---------------------------------------------------------------------------------- */

/*
 * Creates a port, associates a descriptor's operations with a port, or both.
 *
 * - file CP_NO_HANDLE, existing NULL: creates a port on which at most `concurrency` threads process
 *   packets at the same time. 0 means the number of processors available to the process. Returns
 *   the port's handle.
 * - file a descriptor's number, existing a port: operations started on that descriptor by the
 *   reference's calls (WSARecv and so on) complete on the port, with that key. A descriptor can be
 *   associated once. Returns `existing`; `concurrency` is ignored.
 * - file a descriptor's number, existing NULL: both.
 *
 * Returns NULL on failure: CP_ERROR_INVALID_HANDLE if `existing` is not a port or `file` is not an
 * open descriptor; CP_ERROR_INVALID_PARAMETER if the descriptor is already associated, or if there
 * is a port but no descriptor; CP_ERROR_NO_RESOURCES or CP_ERROR_NOT_ENOUGH_MEMORY if the process
 * has run out of descriptors or memory.
 */
cp_handle cp_create_io_completion_port(cp_handle file, cp_handle existing, uintptr_t key,
                                       uint32_t concurrency);

/* Creates a port; see cp_create_io_completion_port. */
static inline cp_handle cp_create_port(uint32_t concurrency) {
    return cp_create_io_completion_port(CP_NO_HANDLE, NULL, 0, concurrency);
}

/*
 * Closes a port or another object of this library.
 *
 * The port is abandoned immediately, with all queued packets. Threads that are waiting on it fail
 * with CP_ERROR_ABANDONED, later calls with CP_ERROR_INVALID_HANDLE. Its sockets stay open and can
 * be registered on another port.
 *
 * Fails with CP_ERROR_INVALID_HANDLE for anything else.
 */
cp_bool cp_close_handle(cp_handle handle);

/*
 * Changes registrations, then takes packets. Either part is optional.
 *
 * First, the call applies the `count` registrations in order and sets the `result` of each. Then,
 * if there is `room` for packets, it waits for at most `milliseconds` until one is available, and
 * takes all available packets, of every kind, up to `room`. It stores their number in `*received`.
 *
 * There are two levels of failure. Check both:
 * - the call returns CP_SUCCESS or CP_ERROR_TIMEOUT: every registration has a result;
 * - it returns CP_ERROR_ABANDONED: the port was closed during the wait; every registration has a
 *   result;
 * - it returns anything else: nothing was changed, and no result was written.
 *
 * Return values of the call:
 * - CP_ERROR_TIMEOUT: no packet arrived in time. `*received` is 0.
 * - CP_ERROR_INVALID_HANDLE: not a port, or a closed one. Checked before anything else.
 * - CP_ERROR_FAULT: a count without an array, or room without `received`.
 * - CP_ERROR_INVALID: an array without a count; no room, but a timeout or `received`; overlapping
 *   arrays. If both counts are 0, the call succeeds and does nothing.
 *
 * Results of a registration:
 * - CP_ERROR_INVALID_PARAMETER: not exactly one operation; an invalid trigger or unknown bits; a
 *   socket that is registered on another port; a registration that is being removed and whose last
 *   packet has not been taken.
 * - CP_ERROR_NOT_FOUND: disable or remove of a socket that is not registered here.
 * - CP_ERROR_NOT_A_SOCKET: not an open descriptor, or not a socket.
 * - CP_ERROR_NO_RESOURCES, CP_ERROR_NOT_ENOUGH_MEMORY: the user's limit on watched descriptors is
 *   reached, or memory is short. Retrying later may succeed.
 *
 * Enabling registers a socket. If it is already registered, enabling replaces the filter and
 * trigger and arms the registration again, but keeps its first key. Removing queues one packet,
 * CP_EVENT_REMOVE, after which no other follows. The memory that the key points to may be freed
 * once this packet has been taken and every packet taken before it has been handled.
 *
 * If the last read or write went through this library's socket calls and found that it would block,
 * enabling needs no system call.
 */
uint32_t cp_process_notifications(cp_handle port, uint32_t count, cp_registration *registrations,
                                  uint32_t milliseconds, uint32_t room, cp_entry *entries,
                                  uint32_t *received);

/* The events in a socket's packet: CP_EVENT_... */
static inline uint32_t cp_events(const cp_entry *entry) {
    return entry->bytes;
}

/*
 * Takes one packet, waiting for at most `milliseconds`.
 *
 * Fails with CP_ERROR_TIMEOUT if none arrived, CP_ERROR_ABANDONED if the port was closed during the
 * wait, CP_ERROR_INVALID_HANDLE, or CP_ERROR_INVALID_PARAMETER if a pointer is NULL. `*overlapped`
 * is NULL then.
 */
cp_bool cp_dequeue(cp_handle port, uint32_t *bytes, uintptr_t *key, void **overlapped,
                   uint32_t milliseconds);

/*
 * Takes at least one and at most `room` packets, waiting for at most `milliseconds`. Stores their
 * number in `*removed`. `alertable` has no effect.
 *
 * Fails like cp_dequeue, and with CP_ERROR_INVALID_PARAMETER if `room` is 0.
 */
cp_bool cp_dequeue_many(cp_handle port, cp_entry *entries, uint32_t room, uint32_t *removed,
                        uint32_t milliseconds, int alertable);

/*
 * Checks whether a packet is queued, without taking it: CP_SUCCESS if so, CP_ERROR_TIMEOUT if not.
 * The calling thread counts neither as waiting nor as running.
 *
 * Returns CP_ERROR_INVALID_HANDLE for anything that is not an open port. Leaves the last error
 * unchanged.
 */
uint32_t cp_peek(cp_handle port);

/*
 * Queues a packet with these three values, which the port does not interpret. Wakes at most one
 * thread: the one that started waiting last.
 *
 * Fails with CP_ERROR_INVALID_HANDLE or CP_ERROR_NOT_ENOUGH_MEMORY.
 */
cp_bool cp_post(cp_handle port, uint32_t bytes, uintptr_t key, void *overlapped);

/* ---- Errors --------------------------------------------------------------------------------- */

/* Returns the code of the calling thread's last failure. */
uint32_t cp_last_error(void);

/* Sets the calling thread's last error. */
void cp_set_last_error(uint32_t code);

#ifndef CP_ON_WINDOWS

/* The code for an errno value of a socket call. */
uint32_t cp_error_of_errno(int error);

/* ---- Descriptors that are closed ------------------------------------------------------------ */

/*
 * A registration belongs to a descriptor number, and the system reuses numbers. The calls below,
 * and cp_socket and cp_accept, end any registration or association of the number. No REMOVE packet
 * follows, and the next socket with that number starts with no registration. A packet that is
 * already queued can still arrive.
 *
 * If another call, such as close(2), closes a registered descriptor, the library detects this at
 * the next change to the number's registration. Enabling then registers the socket that has the
 * number now, with the new key. Disabling or removing fails with CP_ERROR_NOT_FOUND.
 *
 * The check costs a system call. The library skips it if cp_socket or cp_accept returned the number
 * and a read or write since the last packet found that it would block (see below). So one case goes
 * undetected: another call closes such a number, and another call returns it again. Enabling it
 * then arms the former socket's registration, and nothing is reported. To prevent this, use
 * cp_close and the other calls below, or call cp_forget before the number is closed, or turn on
 * checked mode.
 */

/* Ends the number's registration and association, then closes it if it is a socket. Returns 0, or
 * -1. */
int cp_close_socket(int descriptor);

/* Ends the number's registration and association, and leaves it open. Does nothing if it has none. */
void cp_forget(int descriptor);

/*
 * Announces that another call has just returned this number: accept4, socketpair or dup, or a
 * message that carried it. This ends any previous registration or association, and the number then
 * counts as returned by this library. Use this only for numbers that cp_close_socket, cp_close or a
 * call like it will close, or that are passed to cp_forget before they are closed.
 */
void cp_adopt(int descriptor);

/*
 * Call the system's close, dup2, dup3 and close_range. The library then checks the numbers that
 * they close, even if a read or write would have made the check unnecessary. They take no locks: a
 * signal handler may call them, and so may a child after fork or vfork. They are not cancellation
 * points.
 *
 * If completion_port_close.o is linked in, the program and all its libraries use these functions
 * instead of the system's.
 */
int cp_close(int descriptor);
int cp_dup2(int from, int to);
int cp_dup3(int from, int to, int flags);
int cp_close_range(unsigned first, unsigned last, int flags);

/*
 * Turns checked mode on or off for the whole process, and returns whether it was on. In checked
 * mode, the library never skips the check. The mode is also on if the environment variable
 * COMPLETION_PORT_CHECKED is set to anything but 0.
 */
int cp_set_checked(int on);

/* ---- Socket calls --------------------------------------------------------------------------- */

/*
 * Like the system's calls, with these differences:
 * - after a failure, cp_last_error returns the code. errno is as the system set it, except that
 *   EPIPE becomes the actual error: ESHUTDOWN, ECONNRESET or ENOTCONN;
 * - cp_socket and cp_accept end any registration or association of the number they return;
 * - the descriptor that cp_accept returns is non-blocking if the listener is;
 * - a cp_connect in progress fails with CP_ERROR_WOULD_BLOCK. After a refused connect, once its
 *   error has been read, cp_connect connects;
 * - cp_send and cp_sendto raise no SIGPIPE;
 * - a size above SSIZE_MAX, as a negative one becomes, fails with 10014;
 * - cp_getsockopt returns SO_ERROR as a code. cp_getsockopt and cp_setsockopt also accept
 *   SO_RCVTIMEO and SO_SNDTIMEO as four bytes of milliseconds;
 * - a successful cp_setsockopt sets the last error to 0;
 * - after a connection reset, every cp_recv and cp_recvfrom fails with 10054 until the socket is
 *   connected again. The system reports the reset only once;
 * - cp_send and cp_sendto fail with 10058 after cp_shutdown of the sending half, whatever the peer
 *   did;
 * - a blocking call that exceeds its timeout (SO_RCVTIMEO or SO_SNDTIMEO, set as milliseconds)
 *   fails with 10060, not CP_ERROR_WOULD_BLOCK;
 * - the library remembers, until the socket's next packet, that a read or write would block, or
 *   that a read from a TCP stream returned less than requested. Enabling the socket then needs no
 *   system call to check this.
 */
int cp_socket(int family, int type, int protocol);
int cp_accept(int listener, struct sockaddr *address, socklen_t *size);
int cp_bind(int descriptor, const struct sockaddr *address, socklen_t size);
int cp_listen(int descriptor, int backlog);
int cp_connect(int descriptor, const struct sockaddr *address, socklen_t size);
ssize_t cp_recv(int descriptor, void *buffer, size_t size, int flags);
ssize_t cp_recvfrom(int descriptor, void *buffer, size_t size, int flags, struct sockaddr *address,
                    socklen_t *address_size);
ssize_t cp_send(int descriptor, const void *buffer, size_t size, int flags);
ssize_t cp_sendto(int descriptor, const void *buffer, size_t size, int flags,
                  const struct sockaddr *address, socklen_t address_size);
int cp_shutdown(int descriptor, int how);
int cp_getsockopt(int descriptor, int level, int name, void *value, socklen_t *size);
int cp_setsockopt(int descriptor, int level, int name, const void *value, socklen_t size);
int cp_getsockname(int descriptor, struct sockaddr *address, socklen_t *size);
int cp_getpeername(int descriptor, struct sockaddr *address, socklen_t *size);

/* FIONBIO, FIONREAD and SIOCATMARK, with the system's or the reference's numbers. Returns 0, or -1. */
int cp_ioctl_socket(int descriptor, unsigned long request, unsigned long *argument);

#endif

#ifdef __cplusplus
}
#endif

#ifdef CP_ON_WINDOWS
#include "completion_port_windows.h"
#endif

#endif
