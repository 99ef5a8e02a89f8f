/* Compile-time checks of sizes, offsets and values that the reference fixes. The Rust side checks
 * the same numbers for its types. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <completion_port.h>

#include <stddef.h>

#ifdef __cplusplus
#define HOLDS(claim) static_assert(claim, #claim)
#else
#define HOLDS(claim) _Static_assert(claim, #claim)
#endif
#define IS_AT(type, member, offset, size) \
    HOLDS(offsetof(type, member) == (offset)); \
    HOLDS(sizeof(((type *)0)->member) == (size))
#define IS(name, value) HOLDS((name) == (value))

/* ---- types ---------------------------------------------------------------------------------------- */

HOLDS(sizeof(SOCKET) == 8 && (SOCKET)-1 > 0);
HOLDS(sizeof(HANDLE) == 8);
HOLDS(sizeof(BOOL) == 4 && (BOOL)-1 < 0);
HOLDS(sizeof(BYTE) == 1 && sizeof(WORD) == 2 && sizeof(DWORD) == 4 && sizeof(ULONG) == 4 && sizeof(LONG) == 4);
HOLDS((DWORD)-1 > 0 && (ULONG)-1 > 0 && (LONG)-1 < 0);
HOLDS(sizeof(UINT8) == 1 && sizeof(UINT16) == 2 && sizeof(UINT32) == 4 && sizeof(UINT64) == 8);
HOLDS(sizeof(ULONG_PTR) == 8 && sizeof(UINT_PTR) == 8 && sizeof(DWORD_PTR) == 8 && sizeof(PVOID) == 8);
HOLDS(sizeof(USHORT) == 2 && sizeof(UCHAR) == 1 && sizeof(ULONGLONG) == 8 && sizeof(LONGLONG) == 8);
HOLDS(sizeof(u_long) == sizeof(long)); /* the system's own: on Linux it is not a DWORD */

/* ---- structures ------------------------------------------------------------------------------------- */

HOLDS(sizeof(SOCK_NOTIFY_REGISTRATION) == 24);
IS_AT(SOCK_NOTIFY_REGISTRATION, socket, 0x00, 8);
IS_AT(SOCK_NOTIFY_REGISTRATION, completionKey, 0x08, 8);
IS_AT(SOCK_NOTIFY_REGISTRATION, eventFilter, 0x10, 2);
IS_AT(SOCK_NOTIFY_REGISTRATION, operation, 0x12, 1);
IS_AT(SOCK_NOTIFY_REGISTRATION, triggerFlags, 0x13, 1);
IS_AT(SOCK_NOTIFY_REGISTRATION, registrationResult, 0x14, 4);

HOLDS(sizeof(OVERLAPPED_ENTRY) == 32);
IS_AT(OVERLAPPED_ENTRY, lpCompletionKey, 0x00, 8);
IS_AT(OVERLAPPED_ENTRY, lpOverlapped, 0x08, 8);
IS_AT(OVERLAPPED_ENTRY, Internal, 0x10, 8);
IS_AT(OVERLAPPED_ENTRY, dwNumberOfBytesTransferred, 0x18, 4);

HOLDS(sizeof(OVERLAPPED) == 32);
IS_AT(OVERLAPPED, Internal, 0x00, 8);
IS_AT(OVERLAPPED, InternalHigh, 0x08, 8);
IS_AT(OVERLAPPED, Offset, 0x10, 4);
IS_AT(OVERLAPPED, OffsetHigh, 0x14, 4);
IS_AT(OVERLAPPED, Pointer, 0x10, 8);
IS_AT(OVERLAPPED, hEvent, 0x18, 8);

HOLDS(sizeof(WIN32_FIND_DATAA) == 320);
IS_AT(WIN32_FIND_DATAA, ftCreationTime, 0x04, 8);
IS_AT(WIN32_FIND_DATAA, ftLastWriteTime, 0x14, 8);
IS_AT(WIN32_FIND_DATAA, nFileSizeHigh, 0x1C, 4);
IS_AT(WIN32_FIND_DATAA, nFileSizeLow, 0x20, 4);
IS_AT(WIN32_FIND_DATAA, cFileName, 0x2C, 260);
HOLDS(offsetof(WIN32_FIND_DATAW, cFileName) == 0x2C);

HOLDS(sizeof(BY_HANDLE_FILE_INFORMATION) == 52 && sizeof(WIN32_FILE_ATTRIBUTE_DATA) == 36);
IS_AT(BY_HANDLE_FILE_INFORMATION, dwVolumeSerialNumber, 0x1C, 4);
IS_AT(BY_HANDLE_FILE_INFORMATION, nFileIndexLow, 0x30, 4);
IS_AT(WIN32_FILE_ATTRIBUTE_DATA, nFileSizeLow, 0x20, 4);
HOLDS(sizeof(FILE_BASIC_INFO) == 40 && sizeof(FILE_STANDARD_INFO) == 24 && sizeof(FILE_ATTRIBUTE_TAG_INFO) == 8);
HOLDS(sizeof(FILE_ID_128) == 16 && sizeof(FILE_ID_INFO) == 24 && sizeof(FILE_END_OF_FILE_INFO) == 8);
IS_AT(FILE_BASIC_INFO, FileAttributes, 0x20, 4);
IS_AT(FILE_STANDARD_INFO, DeletePending, 0x14, 1);
IS_AT(FILE_STANDARD_INFO, Directory, 0x15, 1);
IS(FileIdInfo, 18);
IS(FileEndOfFileInfo, 6);

HOLDS(sizeof(COORD) == 4 && sizeof(SMALL_RECT) == 8 && sizeof(CONSOLE_SCREEN_BUFFER_INFO) == 22);
IS_AT(CONSOLE_SCREEN_BUFFER_INFO, srWindow, 0x0A, 8);
HOLDS(sizeof(HKEY) == 8 && sizeof(REGSAM) == 4);
HOLDS(offsetof(INPUT_RECORD, Event) == 4 && offsetof(KEY_EVENT_RECORD, uChar) == 0x0A + sizeof(WCHAR) - 2);
IS(PIPE_UNLIMITED_INSTANCES, 255);
IS(PIPE_TYPE_MESSAGE, 4);
IS(PIPE_READMODE_MESSAGE, 2);
IS(PIPE_REJECT_REMOTE_CLIENTS, 8);
IS(KEY_READ, 0x20019);
IS(REG_DWORD, 4);

HOLDS(sizeof(GUID) == 16 && sizeof(LPFN_ACCEPTEX) == 8);
HOLDS(sizeof(WSAOVERLAPPED) == sizeof(OVERLAPPED));
IS(STATUS_PENDING, 0x103);

HOLDS(sizeof(SRWLOCK) == 8 && sizeof(SLIST_ENTRY) == 16 && sizeof(SLIST_HEADER) == 16);
IS_AT(SLIST_ENTRY, Next, 0x00, 8);
IS(MEMORY_ALLOCATION_ALIGNMENT, 16);
IS(WAIT_OBJECT_0, 0);
IS(WAIT_ABANDONED_0, 0x80);
IS(WAIT_ABANDONED, 0x80);
IS(CREATE_MUTEX_INITIAL_OWNER, 1);
IS(MUTEX_ALL_ACCESS, 0x1F0001);
IS(MUTEX_MODIFY_STATE, 1);
IS(INIT_ONCE_CHECK_ONLY, 1);
IS(INIT_ONCE_ASYNC, 2);
IS(INIT_ONCE_INIT_FAILED, 4);
IS(INIT_ONCE_CTX_RESERVED_BITS, 2);
IS(WT_EXECUTELONGFUNCTION, 0x10);
IS(WT_EXECUTEINPERSISTENTTHREAD, 0x80);
IS(WT_TRANSFER_IMPERSONATION, 0x100);
IS(SIO_GET_EXTENSION_FUNCTION_POINTER, 0xC8000006);
IS(SO_UPDATE_ACCEPT_CONTEXT, 0x700B);
IS(SO_CONNECT_TIME, 0x700C);
IS(SO_UPDATE_CONNECT_CONTEXT, 0x7010);
IS(WSA_FLAG_OVERLAPPED, 1);
IS(TF_DISCONNECT, 0x01);
IS(TF_REUSE_SOCKET, 0x02);
IS(TF_WRITE_BEHIND, 0x04);
IS(TF_USE_DEFAULT_WORKER, 0x00);
IS(TF_USE_SYSTEM_THREAD, 0x10);
IS(TF_USE_KERNEL_APC, 0x20);
IS(TP_ELEMENT_MEMORY, 1);
IS(TP_ELEMENT_FILE, 2);
IS(TP_ELEMENT_EOP, 4);
IS(FILE_SKIP_COMPLETION_PORT_ON_SUCCESS, 1);
IS(FILE_SKIP_SET_EVENT_ON_HANDLE, 2);
IS(GENERIC_READ, 0x80000000u);
IS(GENERIC_WRITE, 0x40000000u);
IS(GENERIC_EXECUTE, 0x20000000u);
IS(GENERIC_ALL, 0x10000000u);
IS(FILE_SHARE_READ, 1);
IS(FILE_SHARE_WRITE, 2);
IS(FILE_SHARE_DELETE, 4);
IS(CREATE_NEW, 1);
IS(CREATE_ALWAYS, 2);
IS(OPEN_EXISTING, 3);
IS(OPEN_ALWAYS, 4);
IS(TRUNCATE_EXISTING, 5);
IS(FILE_FLAG_WRITE_THROUGH, 0x80000000u);
IS(FILE_FLAG_OVERLAPPED, 0x40000000u);
IS(FILE_FLAG_NO_BUFFERING, 0x20000000u);
IS(FILE_FLAG_RANDOM_ACCESS, 0x10000000u);
IS(FILE_FLAG_SEQUENTIAL_SCAN, 0x08000000u);
IS(FILE_FLAG_DELETE_ON_CLOSE, 0x04000000u);
IS(FILE_BEGIN, 0);
IS(FILE_CURRENT, 1);
IS(FILE_END, 2);
IS(WSA_IO_PENDING, 997);
IS(WSA_IO_INCOMPLETE, 996);
IS(WSA_OPERATION_ABORTED, 995);

HOLDS(sizeof(TRANSMIT_FILE_BUFFERS) == 32);
IS_AT(TRANSMIT_FILE_BUFFERS, Head, 0x00, 8);
IS_AT(TRANSMIT_FILE_BUFFERS, HeadLength, 0x08, 4);
IS_AT(TRANSMIT_FILE_BUFFERS, Tail, 0x10, 8);
IS_AT(TRANSMIT_FILE_BUFFERS, TailLength, 0x18, 4);

HOLDS(sizeof(TRANSMIT_PACKETS_ELEMENT) == 24);
IS_AT(TRANSMIT_PACKETS_ELEMENT, dwElFlags, 0x00, 4);
IS_AT(TRANSMIT_PACKETS_ELEMENT, cLength, 0x04, 4);
IS_AT(TRANSMIT_PACKETS_ELEMENT, nFileOffset, 0x08, 8);
IS_AT(TRANSMIT_PACKETS_ELEMENT, hFile, 0x10, 8);
IS_AT(TRANSMIT_PACKETS_ELEMENT, pBuffer, 0x08, 8);

HOLDS(sizeof(WSABUF) == 16);
HOLDS(sizeof(fd_set) == 520 && FD_SETSIZE == 64);
HOLDS(offsetof(fd_set, fd_array) == 8 && sizeof(struct fd_set) == sizeof(FD_SET));
HOLDS(sizeof(struct pollfd) == 16 && sizeof(struct pollfd) == sizeof(WSAPOLLFD));
IS_AT(WSABUF, len, 0x00, 4);
IS_AT(WSABUF, buf, 0x08, 8);

HOLDS(sizeof(WSADATA) == 408);
IS_AT(WSADATA, wVersion, 0x00, 2);
IS_AT(WSADATA, wHighVersion, 0x02, 2);
IS_AT(WSADATA, iMaxSockets, 0x04, 2);
IS_AT(WSADATA, iMaxUdpDg, 0x06, 2);
IS_AT(WSADATA, lpVendorInfo, 0x08, 8);
IS_AT(WSADATA, szDescription, 0x10, 257);
IS_AT(WSADATA, szSystemStatus, 0x111, 129);

/* The same under the names that clash with nothing. */
HOLDS(sizeof(cp_registration) == sizeof(SOCK_NOTIFY_REGISTRATION));
HOLDS(sizeof(cp_entry) == sizeof(OVERLAPPED_ENTRY));

/* ---- values ----------------------------------------------------------------------------------------- */

IS(SOCK_NOTIFY_REGISTER_EVENT_NONE, 0x00);
IS(SOCK_NOTIFY_REGISTER_EVENT_IN, 0x01);
IS(SOCK_NOTIFY_REGISTER_EVENT_OUT, 0x02);
IS(SOCK_NOTIFY_REGISTER_EVENT_HANGUP, 0x04);
IS(SOCK_NOTIFY_REGISTER_EVENTS_ALL, 0x07);
IS(SOCK_NOTIFY_EVENT_IN, 0x01);
IS(SOCK_NOTIFY_EVENT_OUT, 0x02);
IS(SOCK_NOTIFY_EVENT_HANGUP, 0x04);
IS(SOCK_NOTIFY_EVENT_ERR, 0x40);
IS(SOCK_NOTIFY_EVENT_REMOVE, 0x80);
IS(SOCK_NOTIFY_EVENTS_ALL, 0xC7);
IS(SOCK_NOTIFY_OP_NONE, 0x00);
IS(SOCK_NOTIFY_OP_ENABLE, 0x01);
IS(SOCK_NOTIFY_OP_DISABLE, 0x02);
IS(SOCK_NOTIFY_OP_REMOVE, 0x04);
IS(SOCK_NOTIFY_TRIGGER_ONESHOT, 0x01);
IS(SOCK_NOTIFY_TRIGGER_PERSISTENT, 0x02);
IS(SOCK_NOTIFY_TRIGGER_LEVEL, 0x04);
IS(SOCK_NOTIFY_TRIGGER_EDGE, 0x08);
IS(SOCK_NOTIFY_TRIGGER_ALL, 0x0F);

IS(TRUE, 1);
IS(FALSE, 0);
IS(INFINITE, 0xFFFFFFFFu);
IS(WAIT_TIMEOUT, 258);
IS(WAIT_OBJECT_0, 0);
IS(SOCKET_ERROR, -1);
HOLDS(INVALID_SOCKET == ~(SOCKET)0);
IS(WINSOCK_VERSION, 0x0202);
IS(MAKEWORD(1, 2), 0x0201);
IS(SD_RECEIVE, 0);
IS(SD_SEND, 1);
IS(SD_BOTH, 2);

IS(ERROR_SUCCESS, 0);
IS(NO_ERROR, 0);
IS(ERROR_FILE_NOT_FOUND, 2);
IS(ERROR_ACCESS_DENIED, 5);
IS(ERROR_INVALID_HANDLE, 6);
IS(ERROR_NOT_ENOUGH_MEMORY, 8);
IS(ERROR_HANDLE_EOF, 38);
IS(ERROR_NETNAME_DELETED, 64);
IS(ERROR_INVALID_PARAMETER, 87);
IS(ERROR_BROKEN_PIPE, 109);
IS(ERROR_NEGATIVE_SEEK, 131);
IS(ERROR_MORE_DATA, 234);
IS(ERROR_IO_INCOMPLETE, 996);
IS(ERROR_MOD_NOT_FOUND, 126);
IS(ERROR_PROC_NOT_FOUND, 127);
IS(ERROR_ABANDONED_WAIT_0, 735);
IS(ERROR_OPERATION_ABORTED, 995);
IS(ERROR_IO_PENDING, 997);
IS(ERROR_NOT_FOUND, 1168);
IS(WSA_IO_PENDING, 997);
IS(WSA_INVALID_HANDLE, 6);
IS(WSA_OPERATION_ABORTED, 995);
IS(WSAEINTR, 10004);
IS(WSAEBADF, 10009);
IS(WSAEACCES, 10013);
IS(WSAEFAULT, 10014);
IS(WSAEINVAL, 10022);
IS(WSAEMFILE, 10024);
IS(WSAEWOULDBLOCK, 10035);
IS(WSAEINPROGRESS, 10036);
IS(WSAEALREADY, 10037);
IS(WSAENOTSOCK, 10038);
IS(WSAEDESTADDRREQ, 10039);
IS(WSAEMSGSIZE, 10040);
IS(WSAEPROTOTYPE, 10041);
IS(WSAENOPROTOOPT, 10042);
IS(WSAEPROTONOSUPPORT, 10043);
IS(WSAESOCKTNOSUPPORT, 10044);
IS(WSAEOPNOTSUPP, 10045);
IS(WSAEPFNOSUPPORT, 10046);
IS(WSAEAFNOSUPPORT, 10047);
IS(WSAEADDRINUSE, 10048);
IS(WSAEADDRNOTAVAIL, 10049);
IS(WSAENETDOWN, 10050);
IS(WSAENETUNREACH, 10051);
IS(WSAENETRESET, 10052);
IS(WSAECONNABORTED, 10053);
IS(WSAECONNRESET, 10054);
IS(WSAENOBUFS, 10055);
IS(WSAEISCONN, 10056);
IS(WSAENOTCONN, 10057);
IS(WSAESHUTDOWN, 10058);
IS(WSAETIMEDOUT, 10060);
IS(WSAECONNREFUSED, 10061);
IS(WSAEHOSTDOWN, 10064);
IS(WSAEHOSTUNREACH, 10065);
IS(WSASYSNOTREADY, 10091);
IS(WSAVERNOTSUPPORTED, 10092);
IS(WSANOTINITIALISED, 10093);

/* ---- functions: their types ---------------------------------------------------------------------------- */

static HANDLE(WINAPI *const create)(HANDLE, HANDLE, ULONG_PTR, DWORD) = CreateIoCompletionPort;
static BOOL(WINAPI *const get)(HANDLE, LPDWORD, PULONG_PTR, LPOVERLAPPED *, DWORD) = GetQueuedCompletionStatus;
static BOOL(WINAPI *const get_many)(HANDLE, LPOVERLAPPED_ENTRY, ULONG, PULONG, DWORD,
                                    BOOL) = GetQueuedCompletionStatusEx;
static BOOL(WINAPI *const post)(HANDLE, DWORD, ULONG_PTR, LPOVERLAPPED) = PostQueuedCompletionStatus;
static BOOL(WINAPI *const close_handle)(HANDLE) = CloseHandle;
static DWORD(WSAAPI *const process)(HANDLE, UINT32, SOCK_NOTIFY_REGISTRATION *, UINT32, ULONG, OVERLAPPED_ENTRY *,
                                    UINT32 *) = ProcessSocketNotifications;
static int(WSAAPI *const start_up)(WORD, LPWSADATA) = WSAStartup;
static int(WSAAPI *const clean_up)(void) = WSACleanup;
static int(WSAAPI *const wsa_error)(void) = WSAGetLastError;
static void(WSAAPI *const set_wsa_error)(int) = WSASetLastError;
static DWORD(WINAPI *const error)(void) = GetLastError;
static void(WINAPI *const set_error)(DWORD) = SetLastError;
static int(WSAAPI *const close_socket)(SOCKET) = closesocket;
static int(WSAAPI *const control)(SOCKET, long, u_long *) = ioctlsocket;

static HANDLE(WINAPI *const create_file)(LPCSTR, DWORD, DWORD, LPSECURITY_ATTRIBUTES, DWORD, DWORD,
                                        HANDLE) = CreateFileA;
static HANDLE(WINAPI *const create_file_wide)(LPCWSTR, DWORD, DWORD, LPSECURITY_ATTRIBUTES, DWORD, DWORD,
                                             HANDLE) = CreateFileW;
static BOOL(WINAPI *const read_file)(HANDLE, LPVOID, DWORD, LPDWORD, LPOVERLAPPED) = ReadFile;
static BOOL(WINAPI *const write_file)(HANDLE, LPCVOID, DWORD, LPDWORD, LPOVERLAPPED) = WriteFile;
static BOOL(WINAPI *const result)(HANDLE, LPOVERLAPPED, LPDWORD, BOOL) = GetOverlappedResult;
static BOOL(WINAPI *const result_in_time)(HANDLE, LPOVERLAPPED, LPDWORD, DWORD, BOOL) = GetOverlappedResultEx;
static BOOL(WINAPI *const cancel)(HANDLE) = CancelIo;
static BOOL(WINAPI *const cancel_one)(HANDLE, LPOVERLAPPED) = CancelIoEx;
static BOOL(WINAPI *const modes)(HANDLE, UCHAR) = SetFileCompletionNotificationModes;
static BOOL(WINAPI *const seek)(HANDLE, LARGE_INTEGER, PLARGE_INTEGER, DWORD) = SetFilePointerEx;
static BOOL(WINAPI *const size_of)(HANDLE, PLARGE_INTEGER) = GetFileSizeEx;
static BOOL(WINAPI *const flush)(HANDLE) = FlushFileBuffers;
static BOOL(WINAPI *const cut_off)(HANDLE) = SetEndOfFile;

static int(WSAAPI *const receive)(SOCKET, LPWSABUF, DWORD, LPDWORD, LPDWORD, LPWSAOVERLAPPED,
                                  LPWSAOVERLAPPED_COMPLETION_ROUTINE) = WSARecv;
static int(WSAAPI *const send_some)(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, LPWSAOVERLAPPED,
                                    LPWSAOVERLAPPED_COMPLETION_ROUTINE) = WSASend;
static int(WSAAPI *const receive_from)(SOCKET, LPWSABUF, DWORD, LPDWORD, LPDWORD, struct sockaddr *, LPINT,
                                       LPWSAOVERLAPPED, LPWSAOVERLAPPED_COMPLETION_ROUTINE) = WSARecvFrom;
static int(WSAAPI *const send_some_to)(SOCKET, LPWSABUF, DWORD, LPDWORD, DWORD, const struct sockaddr *, int,
                                       LPWSAOVERLAPPED, LPWSAOVERLAPPED_COMPLETION_ROUTINE) = WSASendTo;
static int(WSAAPI *const send_message)(SOCKET, LPWSAMSG, DWORD, LPDWORD, LPWSAOVERLAPPED,
                                       LPWSAOVERLAPPED_COMPLETION_ROUTINE) = WSASendMsg;
static int(WSAAPI *const command)(SOCKET, DWORD, LPVOID, DWORD, LPVOID, DWORD, LPDWORD, LPWSAOVERLAPPED,
                                  LPWSAOVERLAPPED_COMPLETION_ROUTINE) = WSAIoctl;
static BOOL(WSAAPI *const wsa_result)(SOCKET, LPWSAOVERLAPPED, LPDWORD, BOOL, LPDWORD) = WSAGetOverlappedResult;

static BOOL(WINAPI *const bind_routine)(HANDLE, LPOVERLAPPED_COMPLETION_ROUTINE, ULONG) = BindIoCompletionCallback;
static PTP_IO(WINAPI *const create_io)(HANDLE, PTP_WIN32_IO_CALLBACK, PVOID, PTP_CALLBACK_ENVIRON) = CreateThreadpoolIo;
static VOID(WINAPI *const start_io)(PTP_IO) = StartThreadpoolIo;
static VOID(WINAPI *const cancel_io)(PTP_IO) = CancelThreadpoolIo;
static VOID(WINAPI *const close_io)(PTP_IO) = CloseThreadpoolIo;
static VOID(WINAPI *const wait_for_io)(PTP_IO, BOOL) = WaitForThreadpoolIoCallbacks;

/* What the types of the extension functions are. */
static BOOL(WINAPI *const accept_ex_as_it_is)(SOCKET, SOCKET, PVOID, DWORD, DWORD, DWORD, LPDWORD,
                                              LPOVERLAPPED) = (LPFN_ACCEPTEX)NULL;
static BOOL(WINAPI *const connect_ex_as_it_is)(SOCKET, const struct sockaddr *, int, PVOID, DWORD, LPDWORD,
                                               LPOVERLAPPED) = (LPFN_CONNECTEX)NULL;
static BOOL(WINAPI *const disconnect_ex_as_it_is)(SOCKET, LPOVERLAPPED, DWORD, DWORD) = (LPFN_DISCONNECTEX)NULL;

/* And that the functions have them. The reference has two of them by their GUIDs alone; programs for it do not name the
 * library of the others here. */
#ifdef _WIN32
#define OF_TYPE(function) NULL
#else
#define OF_TYPE(function) function
#endif
static LPFN_TRANSMITFILE const transmit_file = OF_TYPE(TransmitFile);
static LPFN_TRANSMITPACKETS const transmit_packets = OF_TYPE(TransmitPackets);
static LPFN_ACCEPTEX const accept_ex = OF_TYPE(AcceptEx);
static LPFN_CONNECTEX const connect_ex = OF_TYPE(ConnectEx);
static LPFN_GETACCEPTEXSOCKADDRS const addresses = OF_TYPE(GetAcceptExSockaddrs);
static LPFN_DISCONNECTEX const disconnect_ex = OF_TYPE(DisconnectEx);

int main(void)
{
    OVERLAPPED_ENTRY entry = {0, 0, 0, 0};
    entry.dwNumberOfBytesTransferred = SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_REMOVE;
    (void)create, (void)get, (void)get_many, (void)post, (void)close_handle, (void)process, (void)start_up;
    (void)clean_up, (void)wsa_error, (void)set_wsa_error, (void)error, (void)set_error, (void)close_socket;
    (void)control, (void)accept_ex, (void)connect_ex, (void)addresses, (void)disconnect_ex;
    (void)create_file, (void)read_file, (void)write_file, (void)result, (void)cancel, (void)cancel_one;
    (void)modes, (void)seek, (void)size_of, (void)flush, (void)cut_off, (void)transmit_file, (void)transmit_packets;
    (void)create_file_wide, (void)result_in_time, (void)receive, (void)send_some, (void)receive_from, (void)send_some_to;
    (void)command, (void)send_message, (void)wsa_result, (void)bind_routine, (void)create_io, (void)start_io, (void)cancel_io;
    (void)close_io, (void)wait_for_io, (void)accept_ex_as_it_is, (void)connect_ex_as_it_is;
    (void)disconnect_ex_as_it_is;
    return SocketNotificationRetrieveEvents(&entry) != (SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_REMOVE);
}
