/*
 * Makes Wine's server fail by calls that every Windows bears: "its server fails where a number is polled of which another
 * thread is making a socket". One thread makes and closes sockets, and another one has the driver of sockets poll the number
 * that they have, one after the other.
 *
 * Under Wine 8 a socket is made by two requests to its server. The first one opens the driver and gives the handle; the
 * second one says what kind of socket it is to be. In between the server has a socket for the handle that has no
 * descriptor of Unix yet, and so no place among the descriptors that the server waits for. A poll takes that socket as it
 * takes any other. At its end the server is told what it has to wait for from now on, at the place of each socket that
 * was asked about. Here there is none (its index is -1), `set_fd_events` asserts that there is one, and the server ends
 * for all processes of the prefix.
 *
 * So a poll is deadly if it names a number that was closed, and that another thread's new socket is just getting. A
 * program that polls by number cannot exclude it where others close and make sockets: between its last look at the
 * number and the poll both may happen. One thread alone does no harm, neither by polls of sockets that are open nor by
 * polls of numbers that are closed.
 *
 * If the server fails it says so ("wineserver...: Assertion ... failed"), and this program ends with it and says no
 * more. Otherwise it says after some seconds that nothing has happened.
 *
 * server_fails.exe          sockets and polls, by two threads
 * server_fails.exe device   a single poll, of a handle of the driver of which no socket was made: the same state for ever
 */
#include <winsock2.h>
#include <windows.h>
#include <winternl.h>
#include <stdio.h>
#include <string.h>

enum { SECONDS = 15 };

static HANDLE open_driver(void)
{
    UNICODE_STRING name;
    OBJECT_ATTRIBUTES attributes;
    IO_STATUS_BLOCK status;
    HANDLE driver;
    RtlInitUnicodeString(&name, L"\\Device\\Afd\\ServerFails");
    InitializeObjectAttributes(&attributes, &name, 0, NULL, NULL);
    if (NtCreateFile(&driver, SYNCHRONIZE, &attributes, &status, NULL, 0, FILE_SHARE_READ | FILE_SHARE_WRITE, FILE_OPEN, 0,
                     NULL, 0) != 0) {
        ExitProcess(2);
    }
    return driver;
}

/* What the driver of sockets reads and writes: a poll of one socket. */
struct poll {
    LONGLONG timeout;
    ULONG sockets, exclusive;
    SOCKET socket;
    ULONG events;
    LONG status;
};

/* Asks whether something can be received of what has this number, and waits for nothing. */
static void poll_now(HANDLE driver, HANDLE event, SOCKET number)
{
    struct poll poll = {.timeout = 0, .sockets = 1, .socket = number, .events = 1};
    OVERLAPPED overlapped = {.hEvent = event};
    DWORD size;
    if (!DeviceIoControl(driver, 0x12024, &poll, sizeof poll, &poll, sizeof poll, NULL, &overlapped) &&
        GetLastError() == ERROR_IO_PENDING) {
        GetOverlappedResult(driver, &overlapped, &size, TRUE);
    }
}

static volatile LONG is_over;
static volatile SOCKET number;

static DWORD WINAPI makes_sockets(void *unused)
{
    (void)unused;
    while (!is_over) {
        SOCKET made = socket(AF_INET, SOCK_DGRAM, 0);
        number = made;
        closesocket(made);
    }
    return 0;
}

int main(int count, char **arguments)
{
    WSADATA data;
    HANDLE driver, event, thread;
    ULONGLONG end;
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) {
        return 2;
    }
    driver = open_driver();
    event = CreateEventA(NULL, TRUE, FALSE, NULL);
    if (count > 1 && strcmp(arguments[1], "device") == 0) {
        poll_now(driver, event, (SOCKET)open_driver());
    } else {
        thread = CreateThread(NULL, 0, makes_sockets, NULL, 0, NULL);
        end = GetTickCount64() + SECONDS * 1000;
        while (GetTickCount64() < end) {
            poll_now(driver, event, number);
        }
        is_over = 1;
        WaitForSingleObject(thread, INFINITE);
    }
    printf("nothing has happened\n");
    return 0;
}
