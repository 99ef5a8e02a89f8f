/*
 * completion_port_internals.h: functions that the headers in compat/include call. Not for programs.
 *
 * The inline functions of those headers call the functions declared here, so libcompletion_port.so
 * exports them. A program must not call them itself: a declaration may change with any version.
 * Compiled programs keep working: every library of the same major version keeps the functions that
 * their inline functions call.
 *
 * No other header includes this one. <completion_port.h> declares everything that a program may
 * call.
 */
#ifndef CP_COMPLETION_PORT_INTERNALS_H
#define CP_COMPLETION_PORT_INTERNALS_H

/* <winsock2.h> replaces the inline definitions of recv and recvfrom that _FORTIFY_SOURCE creates.
 * Clang cannot replace them, so they are left out for Clang. */
#if defined __clang__ && defined __USE_FORTIFY_LEVEL && __USE_FORTIFY_LEVEL > 0 && !defined _SYS_SOCKET_H
#define CP_SOCKET_CALLS_ARE_PLAIN
#pragma push_macro("__USE_FORTIFY_LEVEL")
#undef __USE_FORTIFY_LEVEL
#define __USE_FORTIFY_LEVEL 0
#include <sys/socket.h>
#pragma pop_macro("__USE_FORTIFY_LEVEL")
#endif

#include <completion_port.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Winsock's start and end ------------------------------------------------------------------ */

/* Counts how often a program has started Winsock. cp_cleanup returns -1 if the count is 0. */
void cp_startup(void);
int cp_cleanup(void);

/* ---- Functions by name ------------------------------------------------------------------------ */

#define CP_ERROR_MODULE_NOT_FOUND UINT32_C(126)
#define CP_ERROR_FUNCTION_NOT_FOUND UINT32_C(127)

/* One of ws2_32, kernel32, mswsock, iphlpapi, ntdll, user32 and winmm, with or without .dll, in any case. NULL for any
 * other name, with CP_ERROR_MODULE_NOT_FOUND. */
const void *cp_module(const char *name);

/* The address of the module's function with this name in the reference; NULL with
 * CP_ERROR_FUNCTION_NOT_FOUND if it has none. */
const void *cp_function(const void *module, const char *name);

/* ---- Names of hosts ---------------------------------------------------------------------------- */

struct addrinfo;

/* getaddrinfo(3), freeaddrinfo(3) and getnameinfo(3) with Winsock's codes, which are also the last error. */
int cp_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                   struct addrinfo **result);
void cp_freeaddrinfo(struct addrinfo *list);
int cp_getnameinfo(const struct sockaddr *address, socklen_t size, char *node, socklen_t node_size,
                   char *service, socklen_t service_size, int flags);

/* ---- Protocols --------------------------------------------------------------------------------- */

/* Writes the WSAPROTOCOL_INFOA of the protocol at an index of the list, and returns its number; 0
 * at the end of the list. */
int cp_known_protocol(int place, void *info);

/* ---- Threads and events ----------------------------------------------------------------------- */

/* Objects that threads wait for. With `stays`, a signalled object ends any number of waits. NULL on
 * failure. */
cp_handle cp_new_event(int stays, int is_set);
cp_bool cp_set_event(cp_handle event);
cp_bool cp_reset_event(cp_handle event);
cp_bool cp_pulse_event(cp_handle event);
cp_handle cp_new_semaphore(int32_t count, int32_t most);
cp_bool cp_release_semaphore(cp_handle semaphore, int32_t count, int32_t *before);
cp_handle cp_new_timer(int stays);
cp_bool cp_set_timer(cp_handle timer, int64_t due, int32_t period);
cp_bool cp_cancel_timer(cp_handle timer);
cp_handle cp_new_mutex(int is_owned);
cp_bool cp_release_mutex(cp_handle mutex);

/* Names a new object and returns its handle. `unit` is the size of the name's characters. If the
 * name is taken, closes the new object and returns a handle of the object with that name; the last
 * error is then ERROR_ALREADY_EXISTS. Does nothing if either is NULL. */
cp_handle cp_name_object(cp_handle object, const void *name, int unit);
/* Returns a handle of the object that has the name and the same kind as `like`, which it closes. */
cp_handle cp_open_named(cp_handle like, const void *name, int unit);

/* Creates the handle of a thread that is about to be started, and the value that the thread passes to cp_begin_thread.
 * That call returns when the thread may run. If the thread was not started, pass the value to cp_discard_thread. */
cp_handle cp_new_thread(int is_suspended, void **thread);
void cp_begin_thread(void *thread);
void cp_end_thread(uint32_t result);
void cp_discard_thread(void *thread);
uint32_t cp_thread_number(cp_handle thread);
uint32_t cp_resume_thread(cp_handle thread);
cp_bool cp_thread_result(cp_handle thread, uint32_t goes_on, uint32_t *result);

/* Creates a handle for an object of the caller. cp_close_handle closes it; waits do not accept it.
 * The handle takes over one share of the object, which `release` gives up, even if no handle is
 * free and the result is NULL. Any thread may call the two functions. */
cp_handle cp_open_object(void *object, uint32_t kind, void (*retain)(void *), void (*release)(void *));

/* Returns the object of a handle, with a share of it for the caller; NULL if it is not of that
 * kind. */
void *cp_find_object(cp_handle handle, uint32_t kind);

/* WaitForMultipleObjects, and the number of waits queued at an object. */
uint32_t cp_wait_for(const cp_handle *handles, uint32_t count, int all, uint32_t milliseconds);
uint32_t cp_waiting(cp_handle object);

/* Registers a function that a thread of the library calls whenever the handle is signalled. NULL on failure. */
cp_handle cp_register_wait(cp_handle handle, void (*callback)(void *context, uint8_t timed_out), void *context,
                           uint32_t milliseconds, uint32_t flags);
cp_bool cp_unregister_wait(cp_handle wait, cp_handle event);

/* Nanoseconds of a monotonic clock. */
uint64_t cp_clock(void);

/* The ID of the calling thread. */
uint32_t cp_thread_id(void);

/* Waits while `*word` is `expected`, for at most `milliseconds`; may return early. CP_ERROR_TIMEOUT
 * after the timeout, otherwise CP_SUCCESS. */
uint32_t cp_wait_word(const uint32_t *word, uint32_t expected, uint32_t milliseconds);

/* Wakes at most `count` threads that are waiting for that word. */
void cp_wake_word(const uint32_t *word, int count);

/* The same, with a mask for each thread: a wake reaches a thread if their masks have a bit in
 * common. */
void cp_wait_word_as(const uint32_t *word, uint32_t expected, uint32_t sorts);
void cp_wake_word_as(const uint32_t *word, int count, uint32_t sorts);

/* ---- Requests to stop --------------------------------------------------------------------- */

/* Adds or removes a routine that a separate thread calls when a signal asks the program to stop.
 * Without a routine, enables or disables ignoring Ctrl+C. */
cp_bool cp_set_control_handler(int (*routine)(uint32_t), int add);

/* ---- Messages --------------------------------------------------------------------------------- */

/* The message for a code, in one line; NULL if it has none. */
const char *cp_message(uint32_t code);

/* ---- Pointers ---------------------------------------------------------------------------------- */

/* Whether memory is mapped for that many bytes at an address. Does not check whether it is
 * writable. */
int cp_is_memory(uintptr_t place, size_t size);

/* ---- Waits for several sockets ----------------------------------------------------------------- */

/* select. A set begins with a count of four bytes, followed by the sockets, aligned. */
struct timeval;
int cp_select(int ignored, void *reads, void *writes, void *excepts, const struct timeval *time);

/* ---- Calls on several buffers ------------------------------------------------------------------ */

typedef struct cp_buffer {
    uint32_t size;
    char *bytes;
} cp_buffer;

/* Like cp_recvfrom and cp_sendto, with several buffers. Return 0, or -1. `flags` also returns
 * CP_PARTIAL if a datagram was truncated; the call then fails with 10040. */
#define CP_PARTIAL 0x8000
int cp_receive_buffers(int descriptor, const cp_buffer *buffers, uint32_t count, uint32_t *received,
                       uint32_t *flags, struct sockaddr *address, socklen_t *address_size);
int cp_send_buffers(int descriptor, const cp_buffer *buffers, uint32_t count, uint32_t *sent, uint32_t flags,
                    const struct sockaddr *address, socklen_t address_size);

/* ---- Overlapped operations --------------------------------------------------------------------- */

#define CP_ERROR_OPERATION_ABORTED UINT32_C(995)
#define CP_ERROR_IO_INCOMPLETE UINT32_C(996)
#define CP_ERROR_IO_PENDING UINT32_C(997)

/* An `overlapped` is an OVERLAPPED of the reference. It, and the memory of an operation, must stay
 * valid until its first word is no longer 0x103. A call that starts an operation returns 0 if the
 * operation has succeeded; -1 with CP_ERROR_IO_PENDING if it is in progress; -1 with any other code
 * if it failed and only this code reports it. */
int cp_start_receive(int descriptor, const cp_buffer *buffers, uint32_t count, uint32_t *received, uint32_t *flags,
                     struct sockaddr *address, int *address_size, void *overlapped);
int cp_start_send(int descriptor, const cp_buffer *buffers, uint32_t count, uint32_t *sent, uint32_t flags,
                  const struct sockaddr *address, int address_size, void *overlapped);

/* ---- Files ------------------------------------------------------------------------------------- */

/* ReadFile and WriteFile, for files and sockets. Without an `overlapped` they return when the
 * transfer is finished. */
cp_bool cp_read_file(cp_handle file, void *place, uint32_t count, uint32_t *read, void *overlapped);
cp_bool cp_write_file(cp_handle file, const void *place, uint32_t count, uint32_t *written, void *overlapped);

/* CreateFile, with a name in the system's form. (void *)-1 on failure. */
cp_handle cp_open_file(const char *name, uint32_t access, uint32_t share, int inherited, uint32_t disposition,
                       uint32_t flags);

/* GetFileSizeEx; SetFilePointerEx; SetEndOfFile; FlushFileBuffers; GetFileType, of a descriptor if
 * that is not negative. */
cp_bool cp_file_size(cp_handle file, int64_t *size);
cp_bool cp_file_seek(cp_handle file, int64_t distance, uint32_t from, int64_t *place);
cp_bool cp_file_cut(cp_handle file);
cp_bool cp_file_flush(cp_handle file);
uint32_t cp_file_type(cp_handle file, int stream);

/* The metadata that the system reports for a file. Times are FILETIMEs; 0 if the file system does not record one. */
typedef struct cp_facts {
    uint32_t attributes;
    uint32_t links;
    uint64_t device;
    uint64_t index;
    int64_t size;
    int64_t allocated;
    int64_t created;
    int64_t accessed;
    int64_t written;
    int64_t changed;
} cp_facts;

/* For an open file, or for a descriptor if that is not negative; for a name, or for a link itself
 * if its target does not exist. */
cp_bool cp_file_facts(cp_handle file, int stream, cp_facts *facts);
cp_bool cp_name_facts(const char *name, int itself, cp_facts *facts);

/* The system keeps only one attribute: read-only. Folders stay unchanged. */
cp_bool cp_name_set_attributes(const char *name, uint32_t attributes);
cp_bool cp_file_set_attributes(cp_handle file, uint32_t attributes);

/* SetFileTime, where a time of 0 or less stays unchanged. FileEndOfFileInfo. */
cp_bool cp_file_set_times(cp_handle file, int64_t accessed, int64_t written);
cp_bool cp_file_resize(cp_handle file, int64_t size);

/* CreateFileMapping of a file, or of memory for (void *)-1; NULL on failure. MapViewOfFileEx, UnmapViewOfFile and
 * FlushViewOfFile. */
cp_handle cp_create_mapping(cp_handle file, uint32_t protect, uint64_t size);
void *cp_map_view(cp_handle mapping, uint32_t access, uint64_t offset, size_t count, void *place);
cp_bool cp_unmap_view(const void *place);
cp_bool cp_flush_view(const void *place, size_t count);

/* Returns the handle of a descriptor, the same each time, or (void *)-1; a descriptor for a handle,
 * or -1. The last function closes the handle of a descriptor that is about to be closed. */
cp_handle cp_descriptor_handle(int descriptor);
int cp_descriptor_for(cp_handle handle);
void cp_descriptor_ends(int descriptor);

/* MoveFileEx. */
cp_bool cp_move_file(const char *from, const char *to, int replaces);

/* The code for the system's error of a call that takes a name. */
uint32_t cp_error_of_name(int error, const char *name);

/* ---- Results of operations --------------------------------------------------------------------- */

/* The result of an operation; waits for it for at most `milliseconds`. CP_IN_WINSOCK: in the codes
 * of socket calls. */
#define CP_IN_WINSOCK UINT32_C(1)
cp_bool cp_overlapped_result(int descriptor, const void *overlapped, uint32_t *bytes, uint32_t *flags,
                             uint32_t milliseconds, uint32_t how);

/* An operation that finishes within its call: checks whether it may use `overlapped`, and reports
 * its end. Return 0 or -1. */
int cp_begin_instant(int descriptor, const void *overlapped);
int cp_end_instant(int descriptor, void *overlapped, uint32_t bytes);

/* Cancels the operation of `overlapped`, or all operations of the descriptor if that is NULL; or
 * those that the calling thread has started. */
cp_bool cp_cancel(cp_handle file, void *overlapped);
cp_bool cp_cancel_own(cp_handle file);

/* The extension functions, with the reference's arguments; and the address of one by its GUID, or
 * NULL. */
cp_bool cp_accept_ex(uintptr_t listener, uintptr_t accept, void *place, uint32_t data, uint32_t local, uint32_t remote,
                     uint32_t *received, void *overlapped);
void cp_accepted_addresses(void *place, uint32_t data, uint32_t local, uint32_t remote,
                           struct sockaddr **local_address, int *local_size, struct sockaddr **remote_address,
                           int *remote_size);
cp_bool cp_connect_ex(uintptr_t socket, const struct sockaddr *name, int name_size, void *data, uint32_t data_size,
                      uint32_t *sent, void *overlapped);
cp_bool cp_disconnect_ex(uintptr_t socket, void *overlapped, uint32_t flags, uint32_t reserved);
cp_bool cp_transmit_file(uintptr_t socket, cp_handle file, uint32_t size, uint32_t size_of_sends, void *overlapped,
                         const void *beside, uint32_t flags);
cp_bool cp_transmit_packets(uintptr_t socket, const void *packets, uint32_t count, uint32_t size_of_sends,
                            void *overlapped, uint32_t flags);
const void *cp_extension(const void *guid);

/* WSARecvMsg and WSASendMsg, which also has flags. They take a WSAMSG, and whether there is a
 * routine. Return 0 or -1. */
int cp_receive_message(uintptr_t socket, void *message, uint32_t *received, void *overlapped, const void *routine);
int cp_send_message(uintptr_t socket, void *message, uint32_t flags, uint32_t *sent, void *overlapped,
                    const void *routine);

/* Functions that threads of the library call at the end of each operation of a descriptor, or once. */
cp_bool cp_bind_routine(cp_handle file, void (*routine)(uint32_t code, uint32_t bytes, void *overlapped),
                        uint32_t flags);
cp_bool cp_queue_work(uint32_t (*function)(void *), void *context, uint32_t flags);
void *cp_new_pool_work(void (*callback)(void *instance, void *context, void *work), void *context);
void cp_submit_pool_work(void *work);
void cp_wait_for_pool_work(void *work, int cancels);
void cp_close_pool_work(void *work);
cp_bool cp_submit_pool_call(void (*callback)(void *instance, void *context), void *context);
void *cp_new_pool_io(cp_handle file,
                     void (*callback)(void *instance, void *context, void *overlapped, uint32_t code,
                                      uintptr_t bytes, void *io),
                     void *context);
void cp_start_pool_io(void *io);
void cp_cancel_pool_io(void *io);
void cp_close_pool_io(void *io);
void cp_wait_for_pool_io(void *io);

/* Chooses which successful operations queue no packet. */
cp_bool cp_set_completion_modes(cp_handle file, uint8_t modes);

/* Another descriptor of a socket, whose operations complete on the same port. */
int cp_duplicate_socket(int descriptor, cp_bool is_inherited);

#ifdef __cplusplus
}
#endif

#endif
