/*
 * completion_port_windows.h: additions of completion_port.h on Windows, which includes this header.
 *
 * The library is completion_port.dll, for 64-bit programs. Sockets, handles and operations with an
 * OVERLAPPED are the system's. Wine, and Windows before build 20348, cannot report the states of
 * sockets on a completion port. This library provides these notifications everywhere. A program
 * creates its port with cp_create_io_completion_port and registers sockets with
 * cp_process_notifications. It takes, posts and closes with the other functions of
 * completion_port.h. Filters, events, operations, triggers, structures and codes are the
 * reference's.
 *
 * OPERATIONS  cp_create_io_completion_port associates a file or socket whose operations are to
 *             complete on the port. The program then starts, cancels and queries operations with the
 *             system's own calls (ReadFile, WSARecv, AcceptEx, CancelIoEx, GetOverlappedResult, ...).
 *             Each ends with the packet that the system creates: the key, the OVERLAPPED, the number
 *             of bytes and the status. Notifications, posted packets and these packets share one
 *             queue. A socket can be associated and registered at the same time, independently.
 *             SetFileCompletionNotificationModes works as usual.
 *
 * HANDLES     A port is not a kernel object. The system's functions, including DuplicateHandle and
 *             waits for objects, refuse it with ERROR_INVALID_HANDLE. The functions of this library
 *             refuse a completion port of the system with CP_ERROR_INVALID_HANDLE. cp_close_handle
 *             passes every handle of the system to CloseHandle.
 *
 * ERRORS      The last error is the system's: cp_last_error is GetLastError. Successful calls may
 *             change it.
 *
 * CLOSING     A registration belongs to a socket's number. If a socket is closed without
 *             cp_close_socket or cp_forget, the registration ends as well: the library detects this,
 *             and no packet reports it. It cannot detect one case: a socket that was removed, then
 *             closed before its REMOVE packet was taken. Until that packet is taken, a new socket
 *             with the same number is refused with CP_ERROR_INVALID_PARAMETER.
 *
 * THREADS     The concurrency value counts a thread as running from its packet until its next wait
 *             on a port. The library does not detect that it sleeps in between. A handler that has
 *             to wait should do so in cp_blocking, or the port needs a concurrency value that
 *             allows for sleeping threads.
 *
 * WAITS       `alertable` has no effect: waits of this library run no asynchronous procedure calls.
 *
 * If the macro CP_NOTIFICATIONS is defined before the first inclusion, the reference's names call
 * the functions of this library: ProcessSocketNotifications, SocketNotificationRetrieveEvents,
 * CreateIoCompletionPort, GetQueuedCompletionStatus, GetQueuedCompletionStatusEx,
 * PostQueuedCompletionStatus, CloseHandle and closesocket. Compile all sources that share a port
 * with it. Without the macro, the system's names stay untouched. A program that loads the library
 * at run time also finds ProcessSocketNotifications under that name; the port it takes is one from
 * cp_create_io_completion_port.
 */
#ifndef CP_COMPLETION_PORT_WINDOWS_H
#define CP_COMPLETION_PORT_WINDOWS_H

#include "completion_port.h"

/* Other systems need no additions. */
#ifdef CP_ON_WINDOWS

#ifndef _WIN64
#error "completion_port.dll is for 64 bits"
#endif

#include <winsock2.h>
#include <windows.h>

/* ---- The reference's names, where the system's headers lack them --------------------------------- */

#ifndef SOCK_NOTIFY_REGISTER_EVENT_NONE

#define SOCK_NOTIFY_REGISTER_EVENT_NONE 0x00
#define SOCK_NOTIFY_REGISTER_EVENT_IN 0x01
#define SOCK_NOTIFY_REGISTER_EVENT_OUT 0x02
#define SOCK_NOTIFY_REGISTER_EVENT_HANGUP 0x04
#define SOCK_NOTIFY_REGISTER_EVENTS_ALL \
    (SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_OUT | SOCK_NOTIFY_REGISTER_EVENT_HANGUP)

#define SOCK_NOTIFY_EVENT_IN SOCK_NOTIFY_REGISTER_EVENT_IN
#define SOCK_NOTIFY_EVENT_OUT SOCK_NOTIFY_REGISTER_EVENT_OUT
#define SOCK_NOTIFY_EVENT_HANGUP SOCK_NOTIFY_REGISTER_EVENT_HANGUP
#define SOCK_NOTIFY_EVENT_ERR 0x40
#define SOCK_NOTIFY_EVENT_REMOVE 0x80
#define SOCK_NOTIFY_EVENTS_ALL (SOCK_NOTIFY_REGISTER_EVENTS_ALL | SOCK_NOTIFY_EVENT_ERR | SOCK_NOTIFY_EVENT_REMOVE)

#define SOCK_NOTIFY_OP_NONE 0x00
#define SOCK_NOTIFY_OP_ENABLE 0x01
#define SOCK_NOTIFY_OP_DISABLE 0x02
#define SOCK_NOTIFY_OP_REMOVE 0x04

#define SOCK_NOTIFY_TRIGGER_ONESHOT 0x01
#define SOCK_NOTIFY_TRIGGER_PERSISTENT 0x02
#define SOCK_NOTIFY_TRIGGER_LEVEL 0x04
#define SOCK_NOTIFY_TRIGGER_EDGE 0x08
#define SOCK_NOTIFY_TRIGGER_ALL                                          \
    (SOCK_NOTIFY_TRIGGER_ONESHOT | SOCK_NOTIFY_TRIGGER_PERSISTENT |      \
     SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_EDGE)

typedef struct SOCK_NOTIFY_REGISTRATION {
    SOCKET socket;
    PVOID completionKey;
    UINT16 eventFilter;
    UINT8 operation;
    UINT8 triggerFlags;
    DWORD registrationResult;
} SOCK_NOTIFY_REGISTRATION;

#endif

/* ---- Layouts: the structures of completion_port.h are those of the system -------------------------- */

#ifdef __cplusplus
#define CP_HOLDS(claim) static_assert(claim, #claim)
#else
#define CP_HOLDS(claim) _Static_assert(claim, #claim)
#endif
#define CP_IS_AT(ours, member, theirs, name)                       \
    CP_HOLDS(offsetof(ours, member) == offsetof(theirs, name) &&   \
             sizeof(((ours *)0)->member) == sizeof(((theirs *)0)->name))

CP_HOLDS(sizeof(cp_registration) == sizeof(SOCK_NOTIFY_REGISTRATION));
CP_IS_AT(cp_registration, socket, SOCK_NOTIFY_REGISTRATION, socket);
CP_IS_AT(cp_registration, key, SOCK_NOTIFY_REGISTRATION, completionKey);
CP_IS_AT(cp_registration, filter, SOCK_NOTIFY_REGISTRATION, eventFilter);
CP_IS_AT(cp_registration, operation, SOCK_NOTIFY_REGISTRATION, operation);
CP_IS_AT(cp_registration, trigger, SOCK_NOTIFY_REGISTRATION, triggerFlags);
CP_IS_AT(cp_registration, result, SOCK_NOTIFY_REGISTRATION, registrationResult);
CP_HOLDS(sizeof(cp_entry) == sizeof(OVERLAPPED_ENTRY));
CP_IS_AT(cp_entry, key, OVERLAPPED_ENTRY, lpCompletionKey);
CP_IS_AT(cp_entry, overlapped, OVERLAPPED_ENTRY, lpOverlapped);
CP_IS_AT(cp_entry, internal, OVERLAPPED_ENTRY, Internal);
CP_IS_AT(cp_entry, bytes, OVERLAPPED_ENTRY, dwNumberOfBytesTransferred);
CP_HOLDS(sizeof(cp_handle) == sizeof(HANDLE) && sizeof(cp_bool) == sizeof(BOOL));
CP_HOLDS(sizeof(uintptr_t) == sizeof(SOCKET) && sizeof(uintptr_t) == sizeof(ULONG_PTR));

#undef CP_IS_AT
#undef CP_HOLDS

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sockets that are closed ------------------------------------------------------------------------ */

/* Ends the socket's registration, then closes it. Returns 0, or SOCKET_ERROR with the system's
 * code. No packet reports the end; a packet that is already queued can still arrive. */
int cp_close_socket(uintptr_t socket);

/* Ends the socket's registration and leaves it open. Does nothing if it has none. */
void cp_forget(uintptr_t socket);

/* ---- Handlers that sleep ---------------------------------------------------------------------------- */

/* Calls the routine, which is expected to sleep. Until it returns, the calling thread does not
 * count as running on the port, and another thread can take its place. */
void cp_blocking(cp_handle port, void (*routine)(void *), void *context);

/* ---- The reference's names -------------------------------------------------------------------------- */

#ifdef CP_NOTIFICATIONS

static inline DWORD cp_reference_notifications(HANDLE port, UINT32 count, SOCK_NOTIFY_REGISTRATION *registrations,
                                               UINT32 milliseconds, ULONG room, OVERLAPPED_ENTRY *entries,
                                               UINT32 *received) {
    return cp_process_notifications(port, count, (cp_registration *)registrations, milliseconds, room,
                                    (cp_entry *)entries, (uint32_t *)received);
}

static inline UINT32 cp_reference_events(const OVERLAPPED_ENTRY *entry) {
    return entry->dwNumberOfBytesTransferred;
}

static inline HANDLE cp_reference_create(HANDLE file, HANDLE existing, ULONG_PTR key, DWORD concurrency) {
    return cp_create_io_completion_port(file, existing, key, concurrency);
}

static inline BOOL cp_reference_dequeue(HANDLE port, LPDWORD bytes, PULONG_PTR key, LPOVERLAPPED *overlapped,
                                        DWORD milliseconds) {
    return cp_dequeue(port, (uint32_t *)bytes, (uintptr_t *)key, (void **)overlapped, milliseconds);
}

static inline BOOL cp_reference_dequeue_many(HANDLE port, LPOVERLAPPED_ENTRY entries, ULONG room, PULONG removed,
                                             DWORD milliseconds, BOOL alertable) {
    return cp_dequeue_many(port, (cp_entry *)entries, room, (uint32_t *)removed, milliseconds, alertable);
}

static inline BOOL cp_reference_post(HANDLE port, DWORD bytes, ULONG_PTR key, LPOVERLAPPED overlapped) {
    return cp_post(port, bytes, key, overlapped);
}

static inline BOOL cp_reference_close_handle(HANDLE handle) {
    return cp_close_handle(handle);
}

static inline int cp_reference_close_socket(SOCKET socket) {
    return cp_close_socket(socket);
}

#undef ProcessSocketNotifications
#define ProcessSocketNotifications cp_reference_notifications
#undef SocketNotificationRetrieveEvents
#define SocketNotificationRetrieveEvents cp_reference_events
#undef CreateIoCompletionPort
#define CreateIoCompletionPort cp_reference_create
#undef GetQueuedCompletionStatus
#define GetQueuedCompletionStatus cp_reference_dequeue
#undef GetQueuedCompletionStatusEx
#define GetQueuedCompletionStatusEx cp_reference_dequeue_many
#undef PostQueuedCompletionStatus
#define PostQueuedCompletionStatus cp_reference_post
#undef CloseHandle
#define CloseHandle cp_reference_close_handle
#undef closesocket
#define closesocket cp_reference_close_socket

#endif

#ifdef __cplusplus
}
#endif

#endif

#endif
