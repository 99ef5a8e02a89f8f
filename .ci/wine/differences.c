/*
 * What Wine does in another way than Windows, by the bare calls: for each of them the tests of the back end of
 * Windows skip some claims under Wine (`System::not_on_wine` of the test kit).
 *
 * Prints a line for each difference, and ends with 1 if one of them is gone: then what it excuses is to be tested. Each
 * text by which a test is left out under Wine stands here or in server_fails.c between quotation marks, and a test of
 * xtask checks that: as the name of the difference, or in the comment above the function that shows it.
 *
 * One of them takes too many calls to be shown here: "some receives never end". tests/overlapped_stress.c of the C library
 * shows it, which is built against the system alone: of thousands of receives that are cancelled while their sockets are
 * closed, one or two stay in flight in each fifth run.
 */
#include <winsock2.h>
#include <mswsock.h>
#include <ws2tcpip.h>
#include <windows.h>
#include <winternl.h>
#include <stdio.h>
#include <stdlib.h>

static int gone = 0;

static void difference(const char *name, int is_there)
{
    printf("%s: %s\n", name, is_there ? "as ever" : "GONE");
    gone |= !is_there;
}

/* A socket of that type, bound to a free port of the loopback address. */
static SOCKET bound(int type, struct sockaddr_in *address)
{
    int size = sizeof *address;
    SOCKET made = socket(AF_INET, type, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bind(made, (struct sockaddr *)address, size);
    getsockname(made, (struct sockaddr *)address, &size);
    return made;
}

static void reset(SOCKET socket)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, (char *)&hard, sizeof hard);
    closesocket(socket);
}

static void tcp_pair(SOCKET *near_end, SOCKET *far_end)
{
    struct sockaddr_in address;
    int size = sizeof address;
    SOCKET listener = bound(SOCK_STREAM, &address);
    listen(listener, 1);
    *near_end = socket(AF_INET, SOCK_STREAM, 0);
    connect(*near_end, (struct sockaddr *)&address, size);
    *far_end = accept(listener, NULL, NULL);
    closesocket(listener);
}

static int polled(SOCKET socket, SHORT events)
{
    WSAPOLLFD question = {.fd = socket, .events = events};
    return WSAPoll(&question, 1, 1000) > 0 ? question.revents : 0;
}

/* The end of a stream is reported only after the data before it was read: "event for an end of stream behind unread data". */
static void end_behind_data(void)
{
    SOCKET ours, theirs;
    char byte;
    tcp_pair(&ours, &theirs);
    send(theirs, "x", 1, 0);
    shutdown(theirs, SD_SEND);
    Sleep(100);
    int before = polled(ours, POLLRDNORM);
    recv(ours, &byte, 1, 0);
    int after = polled(ours, POLLRDNORM);
    difference("the end behind data is not told", !(before & POLLHUP) && after & POLLHUP);
}

/* A poll that reports a reset takes the error away from the receive that comes after it: "socket error left after its
 * driver has read it". */
static void error_after_reset(void)
{
    SOCKET ours, theirs;
    char byte;
    tcp_pair(&ours, &theirs);
    reset(theirs);
    Sleep(100);
    polled(ours, POLLRDNORM);
    difference("a poll takes the error of a reset", recv(ours, &byte, 1, 0) != SOCKET_ERROR);
}

/* A connection that was reset before it was accepted fails the accept as one that is not connected. */
static void reset_in_the_queue(void)
{
    struct sockaddr_in address;
    int size = sizeof address;
    SOCKET listener = bound(SOCK_STREAM, &address), client = socket(AF_INET, SOCK_STREAM, 0);
    listen(listener, 1);
    connect(client, (struct sockaddr *)&address, size);
    reset(client);
    Sleep(100);
    SOCKET accepted = accept(listener, (struct sockaddr *)&address, &size);
    difference("a connection that was reset is not connected", accepted == INVALID_SOCKET && WSAGetLastError() == WSAENOTCONN);
    closesocket(listener);
}

/* A datagram socket that is connected has another address of the loopback network than it was bound to. */
static void address_of_datagrams(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f030501)};
    int size = sizeof address;
    SOCKET socket_ = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    bind(socket_, (struct sockaddr *)&address, size);
    bind(other, (struct sockaddr *)&address, size);
    getsockname(other, (struct sockaddr *)&address, &size);
    connect(socket_, (struct sockaddr *)&address, size);
    getsockname(socket_, (struct sockaddr *)&address, &size);
    difference("a connected datagram socket is moved", address.sin_addr.s_addr != htonl(0x7f030501));
}

/* Windows reports to a poll, as something to receive, that a datagram has reached nobody: "event for an error of a datagram
 * socket". It also ends a receive that is in flight: "receive in flight that fails with a datagram socket's error".
 * Wine does neither. */
static void datagrams_to_nobody(void)
{
    struct sockaddr_in address, nobody;
    SOCKET ours = bound(SOCK_DGRAM, &address), gone = bound(SOCK_DGRAM, &nobody);
    char byte;
    WSABUF one = {.len = 1, .buf = &byte};
    OVERLAPPED overlapped = {0};
    DWORD flags = 0;
    u_long on = 1;
    closesocket(gone);
    ioctlsocket(ours, FIONBIO, &on);
    connect(ours, (struct sockaddr *)&nobody, sizeof nobody);
    send(ours, "x", 1, 0);
    difference("a poll does not tell of a datagram to nobody", !(polled(ours, POLLRDNORM) & POLLRDNORM));
    WSARecv(ours, &one, 1, NULL, &flags, &overlapped, NULL);
    send(ours, "x", 1, 0);
    Sleep(500);
    difference("a datagram to nobody ends no receive", !HasOverlappedIoCompleted(&overlapped));
    closesocket(ours);
    while (!HasOverlappedIoCompleted(&overlapped)) {
        Sleep(10);
    }
}

static HANDLE port;
static LONG order[3];

static DWORD WINAPI wait_for_packet(void *name)
{
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *overlapped;
    GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, INFINITE);
    order[key] = (LONG)(LONG_PTR)name;
    return 0;
}

/* Of the threads that wait on a completion port the first one is released, and not the last: "completion port that
 * releases the newest thread first". */
static void order_of_release(void)
{
    HANDLE threads[3];
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 3);
    for (LONG_PTR name = 0; name < 3; name++) {
        threads[name] = CreateThread(NULL, 0, wait_for_packet, (void *)name, 0, NULL);
        Sleep(100);
    }
    for (ULONG_PTR key = 0; key < 3; key++) {
        PostQueuedCompletionStatus(port, 0, key, NULL);
        Sleep(100);
    }
    WaitForMultipleObjects(3, threads, TRUE, INFINITE);
    difference("the first waiter is released first", order[0] != 2);
}

/* A completion port that is asked for no packet says that it has brought some. */
static void room_for_nothing(void)
{
    OVERLAPPED_ENTRY entry;
    ULONG count = 0;
    HANDLE port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 1);
    PostQueuedCompletionStatus(port, 0, 1, NULL);
    difference("room for no packet is no mistake", GetQueuedCompletionStatusEx(port, &entry, 0, &count, 0, FALSE));
    CloseHandle(port);
}

/* What the driver of sockets reads and writes: a poll of one socket. */
static struct poll {
    OVERLAPPED overlapped;
    LONGLONG timeout;
    ULONG sockets, exclusive;
    SOCKET socket;
    ULONG events;
    LONG status;
} poll;

static HANDLE driver;
static volatile LONG asked;

static DWORD WINAPI ask_and_end(void *socket)
{
    DWORD size = sizeof poll - sizeof poll.overlapped;
    memset(&poll, 0, sizeof poll);
    poll.timeout = MAXLONGLONG;
    poll.sockets = 1;
    poll.socket = (SOCKET)socket;
    poll.events = 1; /* something to receive */
    DeviceIoControl(driver, 0x12024, &poll.timeout, size, &poll.timeout, size, NULL, &poll.overlapped);
    asked = 1;
    return 0;
}

/* The answer to a poll whose thread is about to end tells nothing: neither what holds, nor that it was cancelled. */
static void answer_as_the_thread_ends(void)
{
    UNICODE_STRING name;
    OBJECT_ATTRIBUTES attributes;
    IO_STATUS_BLOCK status;
    int lost = 0;
    RtlInitUnicodeString(&name, L"\\Device\\Afd\\Differences");
    InitializeObjectAttributes(&attributes, &name, 0, NULL, NULL);
    if (NtCreateFile(&driver, SYNCHRONIZE, &attributes, &status, NULL, 0, FILE_SHARE_READ | FILE_SHARE_WRITE, FILE_OPEN, 0,
                     NULL, 0) != 0) {
        exit(2);
    }
    port = CreateIoCompletionPort(driver, NULL, 0, 1);
    for (int round = 0; round < 2000 && !lost; round++) {
        SOCKET ours, theirs;
        DWORD bytes;
        ULONG_PTR key;
        OVERLAPPED *overlapped;
        tcp_pair(&ours, &theirs);
        asked = 0;
        HANDLE thread = CreateThread(NULL, 0, ask_and_end, (void *)ours, 0, NULL);
        while (!asked) {
            YieldProcessor();
        }
        for (volatile int pause = 0; pause < round * 137 % 9973; pause++) {
        }
        send(theirs, "x", 1, 0);
        GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, INFINITE);
        lost = (DWORD)poll.overlapped.Internal == STATUS_PENDING;
        WaitForSingleObject(thread, INFINITE);
        CloseHandle(thread);
        closesocket(ours);
        closesocket(theirs);
    }
    difference("an answer is lost as its thread ends", lost);
}

/* ---- polls ---------------------------------------------------------------------------------------------------- */

static void polls(void)
{
    struct sockaddr_in address;
    SOCKET ours = bound(SOCK_DGRAM, &address), keeps = bound(SOCK_STREAM, &address), refused = socket(AF_INET, SOCK_STREAM, 0);
    WSAPOLLFD question = {.events = 0};
    u_long on = 1;
    question.fd = ours;
    question.events = POLLRDNORM | POLLPRI;
    difference("a poll may ask for urgent data", WSAPoll(&question, 1, 0) >= 0);
    question = (WSAPOLLFD){.fd = INVALID_SOCKET, .events = POLLRDNORM};
    difference("a poll of nothing that is open says that it is no socket",
               WSAPoll(&question, 1, 0) == SOCKET_ERROR && WSAGetLastError() == WSAENOTSOCK);
    ioctlsocket(refused, FIONBIO, &on);
    connect(refused, (struct sockaddr *)&address, sizeof address);
    question = (WSAPOLLFD){.fd = refused, .events = POLLWRNORM};
    WSAPoll(&question, 1, 5000);
    difference("a refused connect is an error alone to a poll", question.revents == POLLERR);
    closesocket(keeps);
}

/* ---- calls on sockets ------------------------------------------------------------------------------------------- */

static void receives(void)
{
    struct sockaddr_in address;
    SOCKET ours, theirs, datagrams = bound(SOCK_DGRAM, &address);
    char bytes[4];
    WSABUF one = {.len = 1, .buf = bytes}, many[1025];
    DWORD count = 77, flags = MSG_PEEK;
    u_long on = 1;
    tcp_pair(&ours, &theirs);
    send(theirs, "x", 1, 0);
    WSARecv(ours, &one, 1, &count, &flags, NULL, NULL);
    difference("the flags of a receive stay as they were", flags == MSG_PEEK);
    sendto(datagrams, "long", 4, 0, (struct sockaddr *)&address, sizeof address);
    count = 77;
    flags = 0;
    int done = WSARecvFrom(datagrams, &one, 1, &count, &flags, NULL, NULL, NULL, NULL);
    difference("of a datagram that was cut neither flags nor count are told", done != 0 && flags == 0 && count == 77);
    ioctlsocket(theirs, FIONBIO, &on);
    done = WSARecv(theirs, &one, 0, &count, &flags, NULL, NULL);
    difference("a call without buffers is no mistake", done == 0 || WSAGetLastError() != WSAEINVAL);
    for (int place = 0; place < 1025; place++) {
        many[place] = one;
    }
    done = WSASend(theirs, many, 1025, &count, 0, NULL, NULL);
    difference("more than 1,024 buffers are too many", done != 0 && WSAGetLastError() == WSAEMSGSIZE);
}

static void connects(void)
{
    struct sockaddr_in address, good;
    SOCKET keeps = bound(SOCK_STREAM, &address), listener = bound(SOCK_STREAM, &good);
    SOCKET refused = socket(AF_INET, SOCK_STREAM, 0), fresh = socket(AF_INET, SOCK_STREAM, 0);
    char byte;
    listen(listener, 1);
    connect(refused, (struct sockaddr *)&address, sizeof address);
    difference("a receive behind a refused connect finds the end of a stream", recv(refused, &byte, 1, 0) == 0);
    /* Of a socket by overlapped calls, too: there the second connect fails with this code. */
    int again = connect(refused, (struct sockaddr *)&good, sizeof good);
    difference("a socket whose connect was refused cannot be connected again",
               again == SOCKET_ERROR && WSAGetLastError() == WSAECONNABORTED);
    int cut = connect(fresh, (struct sockaddr *)&good, 4);
    difference("a connect takes an address that is too short", cut == 0 || WSAGetLastError() != WSAEFAULT);
    closesocket(keeps);
}

static void options_of_flags(void)
{
    SOCKET stream = socket(AF_INET, SOCK_STREAM, 0);
    BOOL on = TRUE, off = FALSE;
    int size = sizeof on;
    difference("some options take a value of no bytes",
               setsockopt(stream, SOL_SOCKET, SO_REUSEADDR, (char *)&on, 0) == 0);
    setsockopt(stream, SOL_SOCKET, SO_DONTROUTE, (char *)&on, sizeof on);
    setsockopt(stream, SOL_SOCKET, SO_DONTROUTE, (char *)&off, sizeof off);
    getsockopt(stream, SOL_SOCKET, SO_DONTROUTE, (char *)&on, &size);
    difference("SO_DONTROUTE cannot be turned off", on);
    closesocket(stream);
}

static void listeners(void)
{
    SOCKET near_end, far_end, datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    int is_there = listen(datagrams, 1) == SOCKET_ERROR && WSAGetLastError() == WSAEINVAL;
    tcp_pair(&near_end, &far_end);
    is_there &= listen(near_end, 1) == SOCKET_ERROR && WSAGetLastError() == WSAEINVAL;
    difference("who cannot listen at all is told that the address is wrong", is_there);
    closesocket(datagrams);
    closesocket(near_end);
    closesocket(far_end);
}

static void other_calls(void)
{
    struct sockaddr_in address;
    struct in6_addr any = {0};
    SOCKET closed = bound(SOCK_DGRAM, &address), local, base = 0;
    HANDLE reads, writes;
    DWORD off = 0, count;
    char text[2];
    closesocket(closed);
    difference("errors of datagrams are turned off of a number that names nothing",
               WSAIoctl(closed, _WSAIOW(IOC_VENDOR, 12), &off, sizeof off, NULL, 0, &count, NULL, NULL) == 0);
    options_of_flags();
    listeners();
    any.s6_addr[0] = 1;
    InetNtopA(AF_INET6, &any, text, sizeof text);
    difference("text of an address without room has a status as its error", GetLastError() != ERROR_INVALID_PARAMETER);
    local = socket(AF_UNIX, SOCK_STREAM, 0);
    difference("there are no sockets of AF_UNIX", local == INVALID_SOCKET);
    CreatePipe(&reads, &writes, NULL, 0);
    difference("a pipe has a base of the protocol below",
               WSAIoctl((SOCKET)reads, SIO_BASE_HANDLE, NULL, 0, &base, sizeof base, &count, NULL, NULL) == 0);
}

/* ---- operations with an OVERLAPPED ---------------------------------------------------------------------------------- */

static int begins(SOCKET socket, WSABUF *buffer, DWORD flags, OVERLAPPED *overlapped)
{
    memset(overlapped, 0, sizeof *overlapped);
    return WSARecv(socket, buffer, 1, NULL, &flags, overlapped, NULL);
}

static int ends(OVERLAPPED *overlapped, int tries)
{
    while (!HasOverlappedIoCompleted(overlapped) && tries-- > 0) {
        Sleep(10);
    }
    return HasOverlappedIoCompleted(overlapped);
}

/* Addresses and flags that do not fit. What begins with them goes on. */
static void operations_on_datagrams(void)
{
    static OVERLAPPED all, looks, tells;
    static struct sockaddr_in from;
    static int size = 4;
    static char byte;
    struct sockaddr_in address;
    SOCKET ours = bound(SOCK_DGRAM, &address), theirs, stream;
    WSABUF one = {.len = 1, .buf = &byte};
    DWORD flags = 0, count;
    WSARecvFrom(ours, &one, 1, NULL, &flags, (struct sockaddr *)&from, &size, &tells, NULL);
    difference("a receive begins without room for the address of the sender", WSAGetLastError() == WSA_IO_PENDING);
    int sent = WSASendTo(ours, &one, 1, &count, 0, (struct sockaddr *)&address, -1, NULL, NULL);
    difference("a datagram is sent to an address whose length is below 0", sent == 0);
    tcp_pair(&stream, &theirs);
    flags = MSG_WAITALL;
    WSARecv(bound(SOCK_DGRAM, &address), &one, 1, NULL, &flags, &all, NULL);
    int is_begun = WSAGetLastError() == WSA_IO_PENDING;
    flags = MSG_WAITALL | MSG_PEEK;
    WSARecv(stream, &one, 1, NULL, &flags, &looks, NULL);
    difference("a receive may wait for all of datagrams, and while it only looks",
               is_begun && WSAGetLastError() == WSA_IO_PENDING);
    closesocket(ours);
    closesocket(stream);
    closesocket(theirs);
}

static void operations_on_sockets(void)
{
    SOCKET ours, theirs, lonely = socket(AF_INET, SOCK_STREAM, 0);
    char bytes[2];
    WSABUF two = {.len = 2, .buf = bytes};
    OVERLAPPED first, second;
    DWORD count, flags = 0;
    tcp_pair(&ours, &theirs);
    begins(ours, &two, MSG_WAITALL, &first);
    first.Offset = 77;
    send(theirs, "x", 1, 0);
    difference("an overlapped receive does not wait for all", ends(&first, 20));
    WSAGetOverlappedResult(ours, &first, &count, FALSE, &flags);
    difference("the result of an operation has the offset in its OVERLAPPED as flags", flags == 77);
    difference("to cancel all of nothing succeeds", CancelIoEx((HANDLE)ours, NULL));
    difference("operations of what is no file are cancelled", CancelIo(INVALID_HANDLE_VALUE));
    difference("unknown modes of notification are taken", SetFileCompletionNotificationModes((HANDLE)ours, 0x80));
    begins(ours, &two, 0, &first);
    closesocket(ours);
    difference("what is in flight on a socket that is closed ends with another code",
               ends(&first, 100) && (DWORD)first.Internal != 0xC0000120);
    tcp_pair(&ours, &theirs);
    begins(ours, &two, 0, &first);
    begins(ours, &two, 0, &second);
    reset(theirs);
    ends(&first, 100);
    ends(&second, 100);
    difference("what was told to the receives in flight is no more told", begins(ours, &two, 0, &first) == 0);
    memset(&first, 0, sizeof first);
    int sent = WSASend(lonely, &two, 1, NULL, 0, &first, NULL);
    difference("a send without a connection fails as one that was reset",
               sent == SOCKET_ERROR && WSAGetLastError() == WSAECONNRESET);
}

static void *extension(SOCKET socket, GUID guid)
{
    void *function = NULL;
    DWORD count;
    WSAIoctl(socket, SIO_GET_EXTENSION_FUNCTION_POINTER, &guid, sizeof guid, &function, sizeof function, &count, NULL, NULL);
    return function;
}

static void operations_on_connections(void)
{
    struct sockaddr_in address;
    SOCKET listener = bound(SOCK_STREAM, &address), client = socket(AF_INET, SOCK_STREAM, 0);
    SOCKET made = socket(AF_INET, SOCK_STREAM, 0), ours, theirs;
    LPFN_DISCONNECTEX disconnect = (LPFN_DISCONNECTEX)extension(made, (GUID)WSAID_DISCONNECTEX);
    OVERLAPPED overlapped = {0};
    char place[2 * (sizeof address + 16)], bytes[2];
    WSABUF two = {.len = 2, .buf = bytes};
    DWORD count;
    int value = 1, size = sizeof value;
    listen(listener, 5);
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, (char *)&value, sizeof value);
    AcceptEx(listener, made, place, 0, sizeof address + 16, sizeof address + 16, &count, &overlapped);
    connect(client, (struct sockaddr *)&address, sizeof address);
    ends(&overlapped, 100);
    value = 0;
    getsockopt(made, IPPROTO_TCP, TCP_NODELAY, (char *)&value, &size);
    difference("what was set of a socket is lost when it becomes a connection", value == 0);
    disconnect(client, NULL, TF_REUSE_SOCKET, 0);
    int again = connect(client, (struct sockaddr *)&address, sizeof address);
    difference("a socket that was disconnected cannot be used again", again == SOCKET_ERROR);
    tcp_pair(&ours, &theirs);
    begins(ours, &two, 0, &overlapped);
    reset(theirs);
    ends(&overlapped, 100);
    memset(&overlapped, 0, sizeof overlapped);
    difference("what was reset is disconnected",
               disconnect(ours, &overlapped, TF_REUSE_SOCKET, 0) || WSAGetLastError() != WSAENOTCONN);
}

/* Whether an accept begins, which it is then left in. */
static int accepts(SOCKET listener, SOCKET given, DWORD room)
{
    static char place[16][128];
    static OVERLAPPED overlapped[16];
    static int next;
    DWORD received;
    int is_done = AcceptEx(listener, given, place[next], 0, room, room, &received, &overlapped[next]);
    next++;
    return !is_done && WSAGetLastError() == WSA_IO_PENDING;
}

/* What connections are made of, if it does not fit. */
static void connections_of_anything(void)
{
    struct sockaddr_in address, other;
    SOCKET listener = bound(SOCK_STREAM, &address), quiet = bound(SOCK_STREAM, &other), ours, theirs, file;
    SOCKET datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    GUID accept_guid = WSAID_ACCEPTEX;
    LPFN_DISCONNECTEX disconnect;
    static OVERLAPPED overlapped;
    void *function = NULL;
    DWORD count, room = sizeof address + 16;
    HANDLE ends[2];
    listen(listener, 5);
    difference("an accept begins with too little room for an address",
               accepts(listener, socket(AF_INET, SOCK_STREAM, 0), room - 1));
    difference("an accept begins on a socket that does not listen", accepts(quiet, socket(AF_INET, SOCK_STREAM, 0), room));
    difference("an accept begins with a socket that is bound, or is no stream",
               accepts(listener, quiet, room) && accepts(listener, datagrams, room));
    tcp_pair(&ours, &theirs);
    CreatePipe(&ends[0], &ends[1], NULL, 0);
    file = (SOCKET)ends[0];
    difference("anything is taken for the listener of an accepted socket",
               setsockopt(ours, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (char *)&listener, 0) == 0 &&
                   setsockopt(ours, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (char *)&file, sizeof file) == 0 &&
                   setsockopt(file, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (char *)&listener, sizeof listener) == 0);
    disconnect = (LPFN_DISCONNECTEX)extension(ours, (GUID)WSAID_DISCONNECTEX);
    difference("a disconnect takes flags that mean nothing", disconnect(ours, NULL, 1, 1));
    int again = disconnect(ours, &overlapped, 0, 0) || WSAGetLastError() == WSA_IO_PENDING;
    difference("what was disconnected is disconnected once more", again);
    difference("a function is looked up by less than a GUID, or into less than a pointer",
               WSAIoctl(ours, SIO_GET_EXTENSION_FUNCTION_POINTER, &accept_guid, 15, &function, sizeof function, &count, NULL,
                        NULL) == 0 &&
                   WSAIoctl(ours, SIO_GET_EXTENSION_FUNCTION_POINTER, &accept_guid, sizeof accept_guid, &function, 0, &count,
                            NULL, NULL) == 0);
}

/* A socket call on a file fails with another code than on Windows: "error code for a file that is not a socket". And a
 * refused write to a file queues a packet. */
static void operations_on_files(const char *program)
{
    char name[MAX_PATH + 16];
    snprintf(name, sizeof name, "%s.written", program);
    HANDLE file = CreateFileA(name, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_ALWAYS,
                              FILE_FLAG_OVERLAPPED | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    HANDLE own = CreateIoCompletionPort(file, NULL, 0, 1);
    OVERLAPPED overlapped = {.OffsetHigh = 0x7FFFFFFF}, *taken = NULL;
    ULONG_PTR key;
    DWORD count;
    int is_done = WriteFile(file, "x", 1, NULL, &overlapped);
    int is_refused = !is_done && GetLastError() != ERROR_IO_PENDING;
    difference("a packet tells of a write that was refused",
               is_refused && !GetQueuedCompletionStatus(own, &count, &key, &taken, 200) && taken == &overlapped);
    difference("an accept of a file is not supported",
               accept((SOCKET)file, NULL, NULL) == INVALID_SOCKET && WSAGetLastError() != WSAENOTSOCK);
    CloseHandle(file);
}

static volatile LONG calls;

static VOID CALLBACK counts(PVOID unused, BOOLEAN timed_out)
{
    (void)unused, (void)timed_out;
    InterlockedIncrement(&calls);
}

static void waits(void)
{
    HANDLE timer = CreateWaitableTimerA(NULL, FALSE, NULL), event = CreateEventA(NULL, FALSE, FALSE, NULL), wait;
    HANDLE semaphore = CreateSemaphoreA(NULL, 0, 1, NULL);
    LARGE_INTEGER due = {.QuadPart = -1};
    difference("a timer takes a negative period", SetWaitableTimer(timer, &due, -1, NULL, NULL, FALSE));
    difference("a semaphore is released not once", ReleaseSemaphore(semaphore, 0, NULL));
    RegisterWaitForSingleObject(&wait, event, counts, NULL, 10, WT_EXECUTEINWAITTHREAD);
    Sleep(300);
    UnregisterWaitEx(wait, INVALID_HANDLE_VALUE);
    /* Sometimes of a second one; thirty times it should be. */
    difference("a registered wait is told of one time-out", calls < 5);
}

enum { ENDS = 64 };
static HANDLE last_end_is_told;
static volatile LONG ends_told;

static void waits_for_the_last(void)
{
    if (InterlockedIncrement(&ends_told) == ENDS) {
        SetEvent(last_end_is_told);
    }
    WaitForSingleObject(last_end_is_told, 2000);
}

static VOID CALLBACK bound_routine(DWORD code, DWORD bytes, OVERLAPPED *overlapped)
{
    (void)code, (void)bytes, (void)overlapped;
    waits_for_the_last();
}

static VOID CALLBACK pool_callback(PTP_CALLBACK_INSTANCE instance, PVOID context, PVOID overlapped, ULONG code,
                                   ULONG_PTR bytes, PTP_IO io)
{
    (void)instance, (void)context, (void)overlapped, (void)code, (void)bytes, (void)io;
    waits_for_the_last();
}

/* Whether the calls for the ends of that many sends are made though each waits for the last one. */
static int are_all_told(int by_pool)
{
    static OVERLAPPED sends[2][ENDS];
    WSABUF buffer = {.buf = "x", .len = 1};
    SOCKET near_end, far_end;
    PTP_IO io = NULL;
    tcp_pair(&near_end, &far_end);
    last_end_is_told = CreateEventA(NULL, TRUE, FALSE, NULL);
    ends_told = 0;
    if (by_pool) {
        io = CreateThreadpoolIo((HANDLE)near_end, pool_callback, NULL, NULL);
    } else {
        BindIoCompletionCallback((HANDLE)near_end, bound_routine, 0);
    }
    for (int i = 0; i < ENDS; i++) {
        if (io) {
            StartThreadpoolIo(io);
        }
        WSASend(near_end, &buffer, 1, NULL, 0, &sends[by_pool][i], NULL);
    }
    return WaitForSingleObject(last_end_is_told, 1000) == WAIT_OBJECT_0;
}

/* A single thread calls the routines of BindIoCompletionCallback. The pool of CreateThreadpoolIo takes a thread for idle that
 * is only about to begin. */
static void calls_at_ends(void)
{
    int is_told_by_a_routine = are_all_told(0);
    difference("ends of operations are told of by too few threads", !is_told_by_a_routine && !are_all_told(1));
}

/* Of the keys of a console only Ctrl-C can be made for another process, and not Ctrl-Break. */
static void keys_of_a_console(const char *program)
{
    STARTUPINFOA with = {.cb = sizeof with};
    PROCESS_INFORMATION other;
    char command[MAX_PATH + 16];
    int c, pause;
    snprintf(command, sizeof command, "\"%s\" asleep", program);
    if (!CreateProcessA(NULL, command, NULL, NULL, FALSE, CREATE_NO_WINDOW, NULL, NULL, &with, &other)) {
        exit(2);
    }
    FreeConsole();
    for (int tries = 0; !AttachConsole(other.dwProcessId) && tries < 100; tries++) {
        Sleep(50);
    }
    SetConsoleCtrlHandler(NULL, TRUE);
    pause = GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, 0);
    c = GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0);
    TerminateProcess(other.hProcess, 0);
    difference("there is no Ctrl-Break", c && !pause);
}

int main(int count, char **arguments)
{
    WSADATA data;
    if (count > 1) {
        Sleep(10000);
        return 0;
    }
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) {
        return 2;
    }
    end_behind_data();
    error_after_reset();
    address_of_datagrams();
    datagrams_to_nobody();
    order_of_release();
    room_for_nothing();
    answer_as_the_thread_ends();
    reset_in_the_queue();
    polls();
    receives();
    connects();
    other_calls();
    operations_on_datagrams();
    operations_on_sockets();
    operations_on_connections();
    connections_of_anything();
    operations_on_files(arguments[0]);
    waits();
    calls_at_ends();
    /* The last one, since what is printed may go to another console from then on. */
    fflush(stdout);
    keys_of_a_console(arguments[0]);
    return gone;
}
