/* Operations of the system on sockets, files and pipes, whose packets come out of a port: with this library, and in
 * the same way with the system's own ports. Without notifications this is what any Windows does. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include "../check.h"

typedef struct {
    OVERLAPPED overlapped; /* first */
    char bytes[16];
} OPERATION;

static HANDLE port;

static void begin(OPERATION *operation)
{
    memset(operation, 0, sizeof *operation);
}

/* The next packet is that of this operation. */
static void check_end(const OPERATION *operation, uintptr_t key, DWORD bytes)
{
    OVERLAPPED *overlapped = NULL;
    ULONG_PTR told = 0;
    DWORD count = UNTOUCHED;
    CHECK_IS(GetQueuedCompletionStatus(port, &count, &told, &overlapped, SOON), TRUE);
    CHECK(overlapped == &operation->overlapped);
    CHECK_IS(told, key);
    CHECK_IS(count, bytes);
    CHECK(HasOverlappedIoCompleted(overlapped));
}

static void start_receive(SOCKET s, OPERATION *operation)
{
    WSABUF buffer;
    DWORD flags = 0;
    begin(operation);
    buffer.buf = operation->bytes;
    buffer.len = sizeof operation->bytes;
    if (WSARecv(s, &buffer, 1, NULL, &flags, &operation->overlapped, NULL) != 0) {
        CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
    }
}

static void a_receive_and_a_send_end_by_packets(void)
{
    SOCKET near, far;
    OPERATION received, sent;
    WSABUF buffer;
    tcp_pair(&near, &far);
    CHECK(CreateIoCompletionPort((HANDLE)near, port, 7, 0) == port);
    CHECK_FALSE(CreateIoCompletionPort((HANDLE)near, port, 8, 0) != NULL, ERROR_INVALID_PARAMETER);
    start_receive(near, &received);
    CHECK(is_silent(port));
    send_all(far, "abc", 3);
    check_end(&received, 7, 3);
    CHECK_IS(memcmp(received.bytes, "abc", 3), 0);

    begin(&sent);
    buffer.buf = sent.bytes;
    buffer.len = 5;
    if (WSASend(near, &buffer, 1, NULL, 0, &sent.overlapped, NULL) != 0) {
        CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
    }
    check_end(&sent, 7, 5);

    /* Data that has already arrived. */
    send_all(far, "de", 2);
    until(near, POLLIN);
    start_receive(near, &received);
    check_end(&received, 7, 2);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

static void an_operation_without_a_port_of_its_own_makes_no_packet(void)
{
    SOCKET near, far;
    OPERATION received;
    DWORD bytes = 0, flags = 0;
    tcp_pair(&near, &far);
    start_receive(near, &received);
    send_all(far, "x", 1);
    CHECK_IS(WSAGetOverlappedResult(near, &received.overlapped, &bytes, TRUE, &flags), TRUE);
    CHECK_IS(bytes, 1);
    CHECK(is_silent(port));
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

/* A packet that reports a failure is taken, and the call returns the error. */
static void a_cancelled_operation_has_failed(void)
{
    SOCKET near, far;
    OPERATION received;
    OVERLAPPED *overlapped = NULL;
    OVERLAPPED_ENTRY entry;
    ULONG_PTR key = 0;
    ULONG removed = 0;
    DWORD bytes = UNTOUCHED;
    tcp_pair(&near, &far);
    CHECK(CreateIoCompletionPort((HANDLE)near, port, 7, 0) == port);
    start_receive(near, &received);
    CHECK_IS(CancelIoEx((HANDLE)near, &received.overlapped), TRUE);
    CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, SOON), ERROR_OPERATION_ABORTED);
    CHECK(overlapped == &received.overlapped && key == 7 && bytes == 0);

    start_receive(near, &received);
    CHECK_IS(CancelIoEx((HANDLE)near, NULL), TRUE);
    CHECK_IS(GetQueuedCompletionStatusEx(port, &entry, 1, &removed, SOON, FALSE), TRUE);
    CHECK(removed == 1 && entry.lpOverlapped == &received.overlapped && entry.lpCompletionKey == 7);
    CHECK_IS((DWORD)entry.Internal, 0xC0000120u);
    CHECK_IS((DWORD)received.overlapped.Internal, 0xC0000120u);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

static void a_closed_socket_ends_its_operations(void)
{
    SOCKET near, far;
    OPERATION received;
    OVERLAPPED *overlapped = NULL;
    ULONG_PTR key = 0;
    DWORD bytes;
    tcp_pair(&near, &far);
    CHECK(CreateIoCompletionPort((HANDLE)near, port, 9, 0) == port);
    start_receive(near, &received);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, SOON), FALSE);
    CHECK(overlapped == &received.overlapped && key == 9);
    CHECK_IS(closesocket(far), 0);
}

/* By the extension of the system. */
static void an_accept_ends_by_a_packet(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), accepted = tcp_socket(), client;
    GUID name = WSAID_ACCEPTEX;
    LPFN_ACCEPTEX accept_ex = NULL;
    OVERLAPPED overlapped;
    OVERLAPPED_ENTRY entry;
    ULONG removed = 0;
    char room[2 * (sizeof(struct sockaddr_in) + 16)];
    DWORD bytes = 0;
    memset(&overlapped, 0, sizeof overlapped);
    CHECK_IS(WSAIoctl(listener, SIO_GET_EXTENSION_FUNCTION_POINTER, &name, sizeof name, &accept_ex, sizeof accept_ex,
                      &bytes, NULL, NULL),
             0);
    CHECK(CreateIoCompletionPort((HANDLE)listener, port, 11, 0) == port);
    if (!accept_ex(listener, accepted, room, 0, sizeof room / 2, sizeof room / 2, &bytes, &overlapped)) {
        CHECK_IS(WSAGetLastError(), ERROR_IO_PENDING);
    }
    client = tcp_connected_to(&address);
    CHECK_IS(GetQueuedCompletionStatusEx(port, &entry, 1, &removed, SOON, FALSE), TRUE);
    CHECK(removed == 1 && entry.lpOverlapped == &overlapped && entry.lpCompletionKey == 11);
    CHECK_IS((DWORD)entry.Internal, 0);
    CHECK_IS(setsockopt(accepted, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (char *)&listener, sizeof listener), 0);
    send_all(client, "y", 1);
    receive_all(accepted, room, 1);
    CHECK_IS(closesocket(listener), 0);
    CHECK_IS(closesocket(accepted), 0);
    CHECK_IS(closesocket(client), 0);
}

static void a_file_and_its_end(void)
{
    char folder[MAX_PATH], name[MAX_PATH];
    OPERATION written, read;
    OVERLAPPED *overlapped = NULL;
    ULONG_PTR key = 0;
    DWORD bytes = 0;
    HANDLE file;
    CHECK(GetTempPathA(sizeof folder, folder) > 0);
    CHECK(GetTempFileNameA(folder, "cp", 0, name) > 0);
    file = CreateFileA(name, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_ALWAYS,
                       FILE_FLAG_OVERLAPPED | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(CreateIoCompletionPort(file, port, 13, 0) == port);
    begin(&written);
    memcpy(written.bytes, "hello", 5);
    if (!WriteFile(file, written.bytes, 5, NULL, &written.overlapped)) {
        CHECK_IS(GetLastError(), ERROR_IO_PENDING);
    }
    check_end(&written, 13, 5);
    begin(&read);
    read.overlapped.Offset = 1;
    if (!ReadFile(file, read.bytes, 3, NULL, &read.overlapped)) {
        CHECK_IS(GetLastError(), ERROR_IO_PENDING);
    }
    check_end(&read, 13, 3);
    CHECK_IS(memcmp(read.bytes, "ell", 3), 0);

    /* After the end: reported by the call or by a packet. */
    begin(&read);
    read.overlapped.Offset = 5;
    SetLastError(0);
    CHECK_IS(ReadFile(file, read.bytes, 3, NULL, &read.overlapped), FALSE);
    if (GetLastError() == ERROR_IO_PENDING) {
        CHECK_FALSE(GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, SOON), ERROR_HANDLE_EOF);
        CHECK(overlapped == &read.overlapped && key == 13);
    } else {
        CHECK_IS(GetLastError(), ERROR_HANDLE_EOF);
    }
    CHECK(is_silent(port));
    CHECK_IS(CloseHandle(file), TRUE);
}

static void a_pipe(void)
{
    HANDLE server, client;
    OPERATION read;
    DWORD written = 0;
    server = CreateNamedPipeA("\\\\.\\pipe\\completion-port-operations", PIPE_ACCESS_INBOUND | FILE_FLAG_OVERLAPPED,
                              PIPE_TYPE_BYTE | PIPE_WAIT, 1, 0, 0, 0, NULL);
    CHECK(server != INVALID_HANDLE_VALUE);
    client = CreateFileA("\\\\.\\pipe\\completion-port-operations", GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(client != INVALID_HANDLE_VALUE);
    CHECK(CreateIoCompletionPort(server, port, 17, 0) == port);
    begin(&read);
    if (!ReadFile(server, read.bytes, sizeof read.bytes, NULL, &read.overlapped)) {
        CHECK_IS(GetLastError(), ERROR_IO_PENDING);
    }
    CHECK(is_silent(port));
    CHECK_IS(WriteFile(client, "abcd", 4, &written, NULL), TRUE);
    check_end(&read, 17, 4);
    CHECK_IS(CloseHandle(client), TRUE);
    CHECK_IS(CloseHandle(server), TRUE);
}

/* An association makes a port as well. */
static void a_port_may_be_made_with_its_first_file(void)
{
    SOCKET near, far;
    OPERATION received;
    OVERLAPPED_ENTRY entry;
    ULONG removed = 0;
    HANDLE made;
    tcp_pair(&near, &far);
    made = CreateIoCompletionPort((HANDLE)near, NULL, 19, 0);
    CHECK(made != NULL && made != port);
    start_receive(near, &received);
    send_all(far, "z", 1);
    CHECK_IS(GetQueuedCompletionStatusEx(made, &entry, 1, &removed, SOON, FALSE), TRUE);
    CHECK(entry.lpOverlapped == &received.overlapped && entry.lpCompletionKey == 19);
    CHECK_IS(entry.dwNumberOfBytesTransferred, 1);
    CHECK(is_silent(port));
    CHECK_IS(CloseHandle(made), TRUE);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

/* Operations in flight when their port is closed continue, and no packet reports them. */
static void a_port_may_be_closed_before_its_operations_end(void)
{
    SOCKET near, far;
    OPERATION received;
    HANDLE gone = new_port(0);
    DWORD bytes = 0, flags = 0;
    tcp_pair(&near, &far);
    CHECK(CreateIoCompletionPort((HANDLE)near, gone, 1, 0) == gone);
    start_receive(near, &received);
    CHECK_IS(CloseHandle(gone), TRUE);
    send_all(far, "x", 1);
    CHECK_IS(WSAGetOverlappedResult(near, &received.overlapped, &bytes, TRUE, &flags), TRUE);
    CHECK_IS(bytes, 1);
    CHECK_FALSE(PostQueuedCompletionStatus(gone, 0, 0, NULL), ERROR_INVALID_HANDLE);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

static void what_is_no_file_is_refused(void)
{
    HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
    CHECK_IS(CreateIoCompletionPort(INVALID_HANDLE_VALUE, port, 0, 0) == NULL, TRUE);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK_IS(CreateIoCompletionPort((HANDLE)0x7FFFFFF0, port, 0, 0) == NULL, TRUE);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
    CHECK_IS(CreateIoCompletionPort(event, port, 0, 0) == NULL, TRUE);
    CHECK_IS(CloseHandle(event), TRUE);
    CHECK_FALSE(CloseHandle((HANDLE)0x7FFFFFF0), ERROR_INVALID_HANDLE);
}

/* Packets of operations, messages and the other kinds share one queue. */
static void operations_and_messages_are_in_one_queue(void)
{
    enum { ROUNDS = 200 };
    SOCKET near, far;
    OPERATION received;
    OVERLAPPED_ENTRY entries[4];
    ULONG removed = 0, i;
    int round;
    tcp_pair(&near, &far);
    CHECK(CreateIoCompletionPort((HANDLE)near, port, 7, 0) == port);
    for (round = 0; round < ROUNDS; round++) {
        int ended = 0, posted = 0;
        start_receive(near, &received);
        CHECK_IS(PostQueuedCompletionStatus(port, (DWORD)round, 8, NULL), TRUE);
        send_all(far, "x", 1);
        while (ended + posted < 2) {
            CHECK_IS(GetQueuedCompletionStatusEx(port, entries, 4, &removed, SOON, FALSE), TRUE);
            for (i = 0; i < removed; i++) {
                if (entries[i].lpOverlapped == &received.overlapped) {
                    CHECK(entries[i].lpCompletionKey == 7 && entries[i].dwNumberOfBytesTransferred == 1);
                    ended++;
                } else {
                    CHECK(entries[i].lpCompletionKey == 8 && entries[i].lpOverlapped == NULL);
                    CHECK_IS(entries[i].dwNumberOfBytesTransferred, round);
                    posted++;
                }
            }
        }
        CHECK(ended == 1 && posted == 1);
    }
    CHECK(is_silent(port));
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

#if HAS_NOTIFICATIONS

/* The two know nothing of each other, whichever is first. */
static void a_socket_may_be_registered_and_have_operations(void)
{
    int round;
    for (round = 0; round < 2; round++) {
        SOCKET near, far;
        OPERATION received;
        char byte;
        tcp_pair(&near, &far);
        if (round == 0) {
            CHECK_IS(enable(port, near, 21, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        }
        CHECK(CreateIoCompletionPort((HANDLE)near, port, 22, 0) == port);
        if (round == 1) {
            CHECK_IS(enable(port, near, 21, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        }
        CHECK(is_silent(port));
        send_all(far, "x", 1);
        CHECK_NEXT(port, 21, SOCK_NOTIFY_EVENT_IN);
        start_receive(near, &received);
        check_end(&received, 22, 1);
        CHECK_IS(enable(port, near, 21, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK(is_silent(port));
        send_all(far, "x", 1);
        CHECK_NEXT(port, 21, SOCK_NOTIFY_EVENT_IN);
        receive_all(near, &byte, 1);

        /* An operation in flight outlives the registration, and the socket can be registered again. */
        start_receive(near, &received);
        END_REGISTRATION(port, near, 21);
        CHECK_IS(enable(port, near, 23, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_NEXT(port, 23, SOCK_NOTIFY_EVENT_OUT);
        CHECK(is_silent(port));
        send_all(far, "x", 1);
        check_end(&received, 22, 1);
        END_REGISTRATION(port, near, 23);
        CHECK_IS(closesocket(near), 0);
        CHECK_IS(closesocket(far), 0);
    }
}

#endif

int main(void)
{
    start();
    port = new_port(0);
    a_receive_and_a_send_end_by_packets();
    an_operation_without_a_port_of_its_own_makes_no_packet();
    a_cancelled_operation_has_failed();
    a_closed_socket_ends_its_operations();
    an_accept_ends_by_a_packet();
    a_file_and_its_end();
    a_pipe();
    a_port_may_be_made_with_its_first_file();
    a_port_may_be_closed_before_its_operations_end();
    what_is_no_file_is_refused();
    operations_and_messages_are_in_one_queue();
#if HAS_NOTIFICATIONS
    a_socket_may_be_registered_and_have_operations();
#endif
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
