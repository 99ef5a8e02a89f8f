/*
 * completion_port.h: one I/O completion port for any number of threads.
 *
 * A port is a queue of packets. Registered sockets report their state to it, threads post to it, and
 * each packet is taken by one thread, with at most as many threads running at once as the port's
 * concurrency value says. It is what the reference calls an I/O completion port with socket state
 * notifications, on Linux, and on Windows for systems that lack them. Every rule is in docs/SEMANTICS.md of the
 * sources, and each case of this library in crates/capi/tests/CASES.txt.
 *
 * This header is C11 and C++17, includes no system header but the three below, and declares nothing
 * that does not begin with cp_ or CP_. The same functions under the reference's own names are in
 * compat/include: <winsock2.h>, <mswsock.h>, <windows.h>. On Windows it includes the system's <winsock2.h> and
 * <windows.h>, and <completion_port_windows.h>, which says what is different there: what is said below of
 * descriptors holds for sockets, and the last part, from "Descriptors that are closed" on, is for Linux.
 *
 * THREADS  Every function may be called from any thread at any time; none from a signal handler, but for
 *          cp_close, cp_dup2, cp_dup3 and cp_close_range.
 *
 * HANDLES  A port is named by a handle, which is a number in the shape of a pointer, never the address
 *          of anything. It is looked up at each call. A handle that was closed, or that this library has
 *          not given out, is refused with CP_ERROR_INVALID_HANDLE, and nothing else happens. No handle is
 *          ever given out twice.
 *
 * ERRORS   A function that returns a cp_bool returns 0 if it fails; cp_last_error then says why.
 *          cp_process_notifications returns the code itself and leaves the last error alone. A call
 *          that succeeds leaves it alone as well, but for cp_setsockopt. Codes are the reference's.
 *
 * FORK     In a child that was forked, the ports of its parent are refused with
 *          CP_ERROR_INVALID_HANDLE, except that they can be closed. It may make ports of its own, and
 *          register and associate with them what it has inherited. No function hangs in a child, whatever
 *          other threads of its parent were doing.
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
/* Windows itself. A source that is ported may be compiled with _WIN32 on Linux as well. */
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
 * The version of this header. CP_VERSION is one number, which grows with each version:
 *
 *     #if CP_VERSION >= CP_VERSION_NUMBER(0, 2, 0)
 */
#define CP_VERSION_MAJOR 0
#define CP_VERSION_MINOR 1
#define CP_VERSION_PATCH 0
#define CP_VERSION_NUMBER(major, minor, patch) ((major) * 1000000L + (minor) * 1000L + (patch))
#define CP_VERSION CP_VERSION_NUMBER(CP_VERSION_MAJOR, CP_VERSION_MINOR, CP_VERSION_PATCH)

/* ---- Words ---------------------------------------------------------------------------------- */

/* A port, or something else that this library has given out. */
typedef void *cp_handle;

/* 0 if a call has failed, 1 if it has succeeded. */
typedef int cp_bool;

/* The handle that is none. */
#define CP_NO_HANDLE ((cp_handle)(intptr_t)-1)

/* As a number of milliseconds: no limit. */
#define CP_INFINITE UINT32_C(0xFFFFFFFF)

/*
 * A change to the registration of a socket, and its result. 24 bytes.
 */
typedef struct cp_registration {
    uintptr_t socket;  /* the descriptor's number */
    uintptr_t key;     /* what packets bring; counts only when the registration is made */
    uint16_t filter;   /* what to report: CP_REGISTER_... */
    uint8_t operation; /* what to do: one of CP_OP_... */
    uint8_t trigger;   /* how to report: CP_TRIGGER_... */
    uint32_t result;   /* written by the call: CP_SUCCESS, or why this change was refused */
} cp_registration;

/*
 * A packet. 32 bytes.
 */
typedef struct cp_entry {
    uintptr_t key;    /* the registration's or the association's key, or the key that was posted */
    void *overlapped; /* the pointer that was posted, or that of an operation; NULL for what is reported of a socket */
    uintptr_t internal; /* how an operation has ended, in the reference's words; else zero */
    uint32_t bytes;   /* what is reported of a socket (CP_EVENT_...), or the number that was posted or transferred */
} cp_entry;

/* What a registration may ask to be told of. Errors and removals are reported always; to ask for them
 * is allowed and changes nothing. With CP_REGISTER_NONE nothing else is reported. */
#define CP_REGISTER_NONE 0x00
#define CP_REGISTER_IN 0x01
#define CP_REGISTER_OUT 0x02
#define CP_REGISTER_HANGUP 0x04
#define CP_REGISTER_ALL 0x07

/* What a packet reports. */
#define CP_EVENT_IN 0x01     /* a read would not block, or a connection can be accepted */
#define CP_EVENT_OUT 0x02    /* a write would not block, or a connect is done */
#define CP_EVENT_HANGUP 0x04 /* the peer has ended the stream, its half of it, or aborted it */
#define CP_EVENT_ERR 0x40    /* something failed: SO_ERROR or the next call says what */
#define CP_EVENT_REMOVE 0x80 /* the registration has ended: this is its last packet */
#define CP_EVENT_ALL 0xC7

/* What to do with a registration. Exactly one. */
#define CP_OP_NONE 0x00
#define CP_OP_ENABLE 0x01
#define CP_OP_DISABLE 0x02
#define CP_OP_REMOVE 0x04

/* How to report. Exactly one of LEVEL and EDGE; at most one of ONE_SHOT and PERSISTENT, and neither of
 * them means PERSISTENT. ENABLE reports what holds then, whatever the trigger. */
#define CP_TRIGGER_ONE_SHOT 0x01   /* a packet disables the registration, whatever it reports */
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
 * Makes a port, or lets the operations of a descriptor complete on one.
 *
 * - file CP_NO_HANDLE, existing NULL: makes a port on which at most `concurrency` threads run with
 *   packets at once; 0 means as many as the process may use processors. Returns its handle.
 * - file a descriptor's number, existing a port: operations that are begun on that descriptor by the
 *   reference's calls (WSARecv and the like) will complete on the port, with that key. A descriptor can be
 *   associated once. Returns `existing`; `concurrency` is ignored.
 * - file a descriptor's number, existing NULL: both.
 *
 * Returns NULL if it fails: CP_ERROR_INVALID_HANDLE if `existing` is no port or `file` no open
 * descriptor, CP_ERROR_INVALID_PARAMETER if the descriptor is associated already or if a port is given
 * and no descriptor, CP_ERROR_NO_RESOURCES or CP_ERROR_NOT_ENOUGH_MEMORY if the process has no
 * descriptor or memory left.
 */
cp_handle cp_create_io_completion_port(cp_handle file, cp_handle existing, uintptr_t key,
                                       uint32_t concurrency);

/* Makes a port; see cp_create_io_completion_port. */
static inline cp_handle cp_create_port(uint32_t concurrency) {
    return cp_create_io_completion_port(CP_NO_HANDLE, NULL, 0, concurrency);
}

/*
 * Closes a port, and whatever else this library has given a handle for.
 *
 * A port is abandoned at once, with all that is queued: threads that wait on it fail with
 * CP_ERROR_ABANDONED, later calls with CP_ERROR_INVALID_HANDLE. Its sockets stay open, and can be
 * registered elsewhere.
 *
 * Fails with CP_ERROR_INVALID_HANDLE for anything else.
 */
cp_bool cp_close_handle(cp_handle handle);

/*
 * Changes registrations, then takes packets; either may be left out.
 *
 * First the `count` registrations are applied, in order, and each is given its `result`. Then, if there
 * is `room` for packets, it waits until there is one, at most `milliseconds`, and takes as many as there
 * are and as there is room for, of every kind. `*received` is how many.
 *
 * Two levels of failure, which must not be mixed up:
 * - the call returns CP_SUCCESS or CP_ERROR_TIMEOUT: every registration has a result;
 * - it returns CP_ERROR_ABANDONED: the port was closed while it waited; every registration has a result;
 * - it returns anything else: nothing was changed, and no result was written.
 *
 * The call's codes:
 * - CP_ERROR_TIMEOUT: the time is over and no packet came. `*received` is 0.
 * - CP_ERROR_INVALID_HANDLE: not a port, or one that was closed. Checked before anything else.
 * - CP_ERROR_FAULT: a count without an array, or room without `received`.
 * - CP_ERROR_INVALID: an array without a count; no room, but a time or `received`; arrays that overlap.
 *   With both counts 0 it does nothing and succeeds.
 *
 * A registration's results:
 * - CP_ERROR_INVALID_PARAMETER: not exactly one operation; a trigger that is none, or unknown bits; a
 *   socket that is registered on another port; one that is being removed, and whose last packet has not
 *   been taken.
 * - CP_ERROR_NOT_FOUND: to be disabled or removed, and not registered here.
 * - CP_ERROR_NOT_A_SOCKET: not an open descriptor, or not that of a socket.
 * - CP_ERROR_NO_RESOURCES, CP_ERROR_NOT_ENOUGH_MEMORY: the user's limit of watched descriptors is
 *   reached, or memory is short. May pass.
 *
 * Enabling registers a socket, or overwrites filter and trigger of its registration and arms it again;
 * the key stays the first one. Removing makes one packet, CP_EVENT_REMOVE, after which no other follows.
 * Memory that the key points to may be freed when it was taken and every packet that was taken before it
 * has been dealt with.
 *
 * Where the socket calls of this library were used to read and write, and found that nothing is left,
 * enabling costs no system call.
 */
uint32_t cp_process_notifications(cp_handle port, uint32_t count, cp_registration *registrations,
                                  uint32_t milliseconds, uint32_t room, cp_entry *entries,
                                  uint32_t *received);

/* What a socket's packet reports: CP_EVENT_... */
static inline uint32_t cp_events(const cp_entry *entry) {
    return entry->bytes;
}

/*
 * Takes one packet, waiting at most so long for it.
 *
 * Fails with CP_ERROR_TIMEOUT if none came, CP_ERROR_ABANDONED if the port was closed meanwhile,
 * CP_ERROR_INVALID_HANDLE, CP_ERROR_INVALID_PARAMETER (a pointer is NULL). `*overlapped` is NULL then.
 */
cp_bool cp_dequeue(cp_handle port, uint32_t *bytes, uintptr_t *key, void **overlapped,
                   uint32_t milliseconds);

/*
 * Takes packets, at least one and at most `room`, waiting at most so long for them. `*removed` is how
 * many. `alertable` changes nothing.
 *
 * Fails as cp_dequeue does; also with CP_ERROR_INVALID_PARAMETER if there is no room.
 */
cp_bool cp_dequeue_many(cp_handle port, cp_entry *entries, uint32_t room, uint32_t *removed,
                        uint32_t milliseconds, int alertable);

/*
 * Whether a packet is queued, which is left there: CP_SUCCESS if one is, CP_ERROR_TIMEOUT if none is. The
 * calling thread does not count as one that waits or runs.
 *
 * CP_ERROR_INVALID_HANDLE if it is no port, or was closed. The last error is left alone.
 */
uint32_t cp_peek(cp_handle port);

/*
 * Queues a packet of these three words, which mean nothing to the port. At most one thread is woken for
 * it: the one that waited last.
 *
 * Fails with CP_ERROR_INVALID_HANDLE or CP_ERROR_NOT_ENOUGH_MEMORY.
 */
cp_bool cp_post(cp_handle port, uint32_t bytes, uintptr_t key, void *overlapped);

/* ---- Errors --------------------------------------------------------------------------------- */

/* The code of the calling thread's last failure. */
uint32_t cp_last_error(void);

/* Sets it. */
void cp_set_last_error(uint32_t code);

#ifndef CP_ON_WINDOWS

/* The code that stands for a value of errno after a socket call. */
uint32_t cp_error_of_errno(int error);

/* ---- Descriptors that are closed ------------------------------------------------------------ */

/*
 * A registration is that of a descriptor's number, and numbers are given out again. These calls, and
 * cp_socket and cp_accept below, end whatever the number stood for: no REMOVE packet comes, and the next
 * socket of that number is a new one. A packet that is queued already may still come.
 *
 * If another call closes a registered descriptor, close(2) for instance, the next change to the registration of
 * its number finds out. To enable then registers the socket that the number names by now, with the key given
 * then; to disable or to remove gives CP_ERROR_NOT_FOUND.
 *
 * To find out costs a system call. It is spared if cp_socket or cp_accept has given the number out, and a read or
 * write has found since the last packet that it would block (see below). So one case is not found out: such a
 * number is closed by another call, and given out by another one. To enable it then arms the former socket's
 * registration, and nothing is reported. To rule that out call cp_close and the like instead, or cp_forget
 * before the number is closed, or turn the checked mode on.
 */

/* Ends what the number stands for, then closes it, if it is a socket. 0, or -1. */
int cp_close_socket(int descriptor);

/* Ends what the number stands for, and leaves it open. Nothing happens if it stands for nothing. */
void cp_forget(int descriptor);

/*
 * Says that another call has just given the number out: accept4, socketpair or dup, or a message that brought it.
 * What it stood for has ended, and it counts as given out by this library. Only for a number that cp_close_socket
 * or cp_close and the like will close, or that is handed to cp_forget before it is closed.
 */
void cp_adopt(int descriptor);

/*
 * As close, dup2, dup3 and close_range of the system, which they call: afterwards the numbers that they close
 * are asked about whatever a read or write has found. They take no lock: a signal handler may call them, and a
 * child after fork or vfork. They are no points at which a thread is cancelled.
 *
 * Linked with completion_port_close.o, the program and all its libraries call these where they call the
 * system's.
 */
int cp_close(int descriptor);
int cp_dup2(int from, int to);
int cp_dup3(int from, int to, int flags);
int cp_close_range(unsigned first, unsigned last, int flags);

/*
 * Turns the checked mode on or off for the whole process, and returns whether it was on. In it the question is
 * never spared. It is also on if COMPLETION_PORT_CHECKED is set in the environment to anything but 0.
 */
int cp_set_checked(int on);

/* ---- Socket calls --------------------------------------------------------------------------- */

/*
 * As the system's, and beside it:
 * - after a failure cp_last_error has the code; errno is as the system left it, but for EPIPE, which
 *   becomes what it stands for: ESHUTDOWN, ECONNRESET or ENOTCONN;
 * - cp_socket and cp_accept end what the number they return stood for before;
 * - what cp_accept returns is non-blocking if the listener is;
 * - a cp_connect that goes on has failed with CP_ERROR_WOULD_BLOCK; one after a refused connect, whose
 *   error was fetched, connects;
 * - cp_send and cp_sendto raise no SIGPIPE;
 * - cp_getsockopt gives SO_ERROR as a code; cp_getsockopt and cp_setsockopt take SO_RCVTIMEO and
 *   SO_SNDTIMEO as milliseconds in four bytes, too;
 * - a cp_setsockopt that succeeds sets the last error to 0;
 * - after a connection was reset every cp_recv and cp_recvfrom fails with 10054, not only the one that the
 *   system tells so, until the socket is connected anew;
 * - cp_send and cp_sendto behind a cp_shutdown of the sending half fail with 10058, whatever the peer did;
 * - a blocking call whose time (SO_RCVTIMEO, SO_SNDTIMEO, set as milliseconds) is over fails with
 *   10060, not CP_ERROR_WOULD_BLOCK;
 * - a read or write that would block, and a read of a TCP stream that brings less than was asked for,
 *   are remembered until the next packet of that socket, and spare the system call by which enabling it
 *   would find that out.
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

/* FIONBIO, FIONREAD and SIOCATMARK, by the system's numbers or the reference's. 0, or -1. */
int cp_ioctl_socket(int descriptor, unsigned long request, unsigned long *argument);

#endif

#ifdef __cplusplus
}
#endif

#ifdef CP_ON_WINDOWS
#include "completion_port_windows.h"
#endif

#endif
