/*
 * What Wine does in another way than Windows, by the bare calls: for each of them the tests of the back end of
 * Windows skip some claims under Wine (`System::not_on_wine` of the test kit).
 *
 * Prints a line for each difference, and ends with 1 if one of them is gone: then what it excuses is to be tested.
 */
#include <winsock2.h>
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

static void tcp_pair(SOCKET *near_end, SOCKET *far_end)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int size = sizeof address;
    SOCKET listener = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&address, size);
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&address, &size);
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

/* The end of a stream is told of only after the data before it was read. */
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

/* A poll that tells of a reset takes the error away from the receive that comes after it. */
static void error_after_reset(void)
{
    SOCKET ours, theirs;
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    char byte;
    tcp_pair(&ours, &theirs);
    setsockopt(theirs, SOL_SOCKET, SO_LINGER, (char *)&hard, sizeof hard);
    closesocket(theirs);
    Sleep(100);
    polled(ours, POLLRDNORM);
    difference("a poll takes the error of a reset", recv(ours, &byte, 1, 0) != SOCKET_ERROR);
}

/* A connection that was reset before it was accepted fails the accept as one that is not connected. */
static void reset_in_the_queue(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    int size = sizeof address;
    SOCKET listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&address, size);
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&address, &size);
    connect(client, (struct sockaddr *)&address, size);
    setsockopt(client, SOL_SOCKET, SO_LINGER, (char *)&hard, sizeof hard);
    closesocket(client);
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

/* Of the threads that wait on a completion port the first one is released, and not the last. */
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
    order_of_release();
    room_for_nothing();
    answer_as_the_thread_ends();
    reset_in_the_queue();
    /* The last one, since what is printed may go to another console from then on. */
    fflush(stdout);
    keys_of_a_console(arguments[0]);
    return gone;
}
