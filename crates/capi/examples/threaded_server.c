/* A multi-threaded server: 16 threads wait on one port, and 100 clients send to it.
 *
 * Every registration is one-shot: a packet belongs to the thread that took it. No other thread gets
 * one of that socket until it is enabled again, so the state of a connection needs no lock. Keys
 * distinguish the listener and the connections. A connection ends in order: the server requests
 * REMOVE, and only the REMOVE packet closes the socket and frees the memory. When all clients have
 * disconnected, the listener is removed as well, and a posted packet announces the end. Each thread
 * passes it on to the next and returns.
 *
 * The source is written for the Windows interface and is independent of the system. */
#include <winsock2.h>
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 16, CLIENTS = 100, CLIENT_THREADS = 10, BYTES = 20000, ROOM = 4 };

/* Keys. Any other key points to a connection. */
#define KEY_LISTENER ((ULONG_PTR)1)
#define KEY_OVER ((ULONG_PTR)2)

typedef struct {
    SOCKET socket;
    int first, last; /* what of the buffer is still to be sent back */
    int has_seen_end;
    LONG in_use;     /* by how many threads: never more than one */
    char buffer[2048];
} CONNECTION;

static HANDLE port;
static SOCKET listener;
static struct sockaddr_in address;
static volatile LONG accepted, removed, bytes_in, bytes_out, threads_over;

static void fail(const char *what)
{
    fprintf(stderr, "%s: error %u\n", what, (unsigned)GetLastError());
    exit(1);
}

static void change(SOCKET socket, ULONG_PTR key, UINT8 operation, UINT16 events)
{
    SOCK_NOTIFY_REGISTRATION registration;
    DWORD outcome;
    memset(&registration, 0, sizeof registration);
    registration.socket = socket;
    registration.completionKey = (PVOID)key;
    registration.operation = operation;
    registration.eventFilter = events;
    registration.triggerFlags =
        operation == SOCK_NOTIFY_OP_ENABLE ? SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_ONESHOT : 0;
    outcome = ProcessSocketNotifications(port, 1, &registration, 0, 0, NULL, NULL);
    if (outcome == ERROR_SUCCESS) {
        outcome = registration.registrationResult;
    }
    if (outcome != ERROR_SUCCESS) {
        SetLastError(outcome);
        fail("changing a registration");
    }
}

static void make_nonblocking(SOCKET socket)
{
    u_long on = 1;
    if (ioctlsocket(socket, FIONBIO, &on) != 0) {
        fail("ioctlsocket");
    }
}

static void accept_all(void)
{
    for (;;) {
        SOCKET made = accept(listener, NULL, NULL);
        CONNECTION *connection;
        if (made == INVALID_SOCKET) {
            if (WSAGetLastError() != WSAEWOULDBLOCK) {
                fail("accept");
            }
            break;
        }
        make_nonblocking(made);
        connection = (CONNECTION *)calloc(1, sizeof *connection);
        if (connection == NULL) {
            fail("calloc");
        }
        connection->socket = made;
        InterlockedIncrement(&accepted);
        /* From here on any thread may have the connection. */
        change(made, (ULONG_PTR)connection, SOCK_NOTIFY_OP_ENABLE,
               SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_HANGUP);
    }
    if (accepted < CLIENTS) {
        change(listener, KEY_LISTENER, SOCK_NOTIFY_OP_ENABLE, SOCK_NOTIFY_REGISTER_EVENT_IN);
    } else {
        change(listener, KEY_LISTENER, SOCK_NOTIFY_OP_REMOVE, 0);
    }
}

/* The last thing that happens to a connection, or to the listener. */
static void removal(void)
{
    if (InterlockedIncrement(&removed) == CLIENTS + 1) {
        if (!PostQueuedCompletionStatus(port, 0, KEY_OVER, NULL)) {
            fail("PostQueuedCompletionStatus");
        }
    }
}

/* Reads and sends back until the socket would block, then requests the next event: either the
 * registration is enabled again or it is removed, never both. */
static void serve(CONNECTION *connection)
{
    SOCKET socket = connection->socket;
    UINT16 events = SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_HANGUP;
    int is_over = 0;
    if (InterlockedIncrement(&connection->in_use) != 1) {
        fprintf(stderr, "two threads have a packet of one connection\n");
        exit(1);
    }
    for (;;) {
        int count;
        if (connection->first < connection->last) {
            count = (int)send(socket, connection->buffer + connection->first,
                              connection->last - connection->first, 0);
            if (count < 0) {
                if (WSAGetLastError() != WSAEWOULDBLOCK) {
                    fail("send of the server");
                }
                events = SOCK_NOTIFY_REGISTER_EVENT_OUT;
                break;
            }
            connection->first += count;
            InterlockedExchangeAdd(&bytes_out, count);
        } else if (connection->has_seen_end) {
            is_over = 1;
            break;
        } else {
            count = (int)recv(socket, connection->buffer, sizeof connection->buffer, 0);
            if (count < 0) {
                if (WSAGetLastError() != WSAEWOULDBLOCK) {
                    fail("recv of the server");
                }
                break;
            }
            connection->has_seen_end = count == 0;
            connection->first = 0;
            connection->last = count;
            InterlockedExchangeAdd(&bytes_in, count);
        }
    }
    InterlockedDecrement(&connection->in_use);
    /* After this the connection may be another thread's, or gone. */
    if (is_over) {
        change(socket, (ULONG_PTR)connection, SOCK_NOTIFY_OP_REMOVE, 0);
    } else {
        change(socket, (ULONG_PTR)connection, SOCK_NOTIFY_OP_ENABLE, events);
    }
}

static DWORD WINAPI server_thread(LPVOID unused)
{
    (void)unused;
    for (;;) {
        OVERLAPPED_ENTRY entries[ROOM];
        ULONG count, i;
        int is_over = 0;
        if (!GetQueuedCompletionStatusEx(port, entries, ROOM, &count, 60000, FALSE)) {
            fail("waiting");
        }
        for (i = 0; i < count; i++) {
            ULONG_PTR key = entries[i].lpCompletionKey;
            UINT32 events = SocketNotificationRetrieveEvents(&entries[i]);
            if (key == KEY_OVER) {
                is_over = 1;
            } else if (key == KEY_LISTENER) {
                if (events & SOCK_NOTIFY_EVENT_REMOVE) {
                    closesocket(listener);
                    removal();
                } else {
                    accept_all();
                }
            } else if (events & SOCK_NOTIFY_EVENT_REMOVE) {
                closesocket(((CONNECTION *)key)->socket);
                free((CONNECTION *)key);
                removal();
            } else {
                serve((CONNECTION *)key);
            }
        }
        if (is_over) {
            /* There is one such packet for all threads. */
            if (!PostQueuedCompletionStatus(port, 0, KEY_OVER, NULL)) {
                fail("PostQueuedCompletionStatus");
            }
            InterlockedIncrement(&threads_over);
            return 0;
        }
    }
}

/* Each client thread runs its clients one after the other, with blocking calls. */
static DWORD WINAPI client_thread(LPVOID first)
{
    int which = (int)(ULONG_PTR)first, end = which + CLIENTS / CLIENT_THREADS;
    char *sent = (char *)malloc(BYTES), *received = (char *)malloc(BYTES);
    if (sent == NULL || received == NULL) {
        fail("malloc");
    }
    for (; which < end; which++) {
        SOCKET client = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
        int i, done;
        for (i = 0; i < BYTES; i++) {
            sent[i] = (char)(which * 13 + i * 7 + i / 256);
        }
        if (client == INVALID_SOCKET || connect(client, (struct sockaddr *)&address, sizeof address) != 0) {
            fail("connecting a client");
        }
        for (done = 0; done < BYTES;) {
            int count = (int)send(client, sent + done, BYTES - done, 0);
            if (count <= 0) {
                fail("send of a client");
            }
            done += count;
        }
        if (shutdown(client, SD_SEND) != 0) {
            fail("shutdown of a client");
        }
        for (done = 0;;) {
            int count = (int)recv(client, received + done, BYTES - done, 0);
            if (count < 0) {
                fail("recv of a client");
            }
            done += count;
            if (count == 0) {
                break;
            }
            if (done == BYTES) { /* the next must be the end */
                char more;
                if (recv(client, &more, 1, 0) != 0) {
                    fail("a client got more than it sent");
                }
                break;
            }
        }
        if (done != BYTES || memcmp(sent, received, BYTES) != 0) {
            fprintf(stderr, "client %d: %d bytes came back, or not the same\n", which, done);
            exit(1);
        }
        closesocket(client);
    }
    free(sent);
    free(received);
    return 0;
}

static HANDLE start(LPTHREAD_START_ROUTINE routine, ULONG_PTR argument)
{
    HANDLE thread = CreateThread(NULL, 0, routine, (LPVOID)argument, 0, NULL);
    if (thread == NULL) {
        fail("CreateThread");
    }
    return thread;
}

static void join(HANDLE *threads, DWORD count)
{
    DWORD i;
    if (WaitForMultipleObjects(count, threads, TRUE, INFINITE) != WAIT_OBJECT_0) {
        fail("WaitForMultipleObjects");
    }
    for (i = 0; i < count; i++) {
        CloseHandle(threads[i]);
    }
}

int main(void)
{
    HANDLE servers[THREADS], clients[CLIENT_THREADS];
    WSADATA data;
    int length = (int)sizeof address, i;

    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) {
        fail("WSAStartup");
    }
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    if (port == NULL) {
        fail("CreateIoCompletionPort");
    }
    listener = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener == INVALID_SOCKET || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 || listen(listener, SOMAXCONN) != 0) {
        fail("making the listener");
    }
    make_nonblocking(listener);
    change(listener, KEY_LISTENER, SOCK_NOTIFY_OP_ENABLE, SOCK_NOTIFY_REGISTER_EVENT_IN);

    for (i = 0; i < THREADS; i++) {
        servers[i] = start(server_thread, 0);
    }
    for (i = 0; i < CLIENT_THREADS; i++) {
        clients[i] = start(client_thread, (ULONG_PTR)i * (CLIENTS / CLIENT_THREADS));
    }
    join(clients, CLIENT_THREADS);
    join(servers, THREADS);

    printf("%d connections accepted, %d registrations removed, %d bytes in, %d out, %d threads over\n",
           (int)accepted, (int)removed, (int)bytes_in, (int)bytes_out, (int)threads_over);
    if (accepted != CLIENTS || removed != CLIENTS + 1 || bytes_in != CLIENTS * BYTES || bytes_out != bytes_in ||
        threads_over != THREADS) {
        return 1;
    }
    CloseHandle(port);
    WSACleanup();
    return 0;
}
