/* A datagram server with one edge-triggered registration, made before the socket is bound, and
 * never renewed.
 *
 * An edge is reported once. So the server reads until the socket would block; only then does the
 * next datagram cause another edge. When a full socket becomes writable again, OUT reports it: the
 * server keeps the unsent answer and continues there. Clients are sockets of the same thread. Each
 * sends numbered datagrams, a few at a time, and checks that each answer is the reversed datagram.
 *
 * The source is written for the Windows interface and is independent of the system. */
#include <winsock2.h>
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 4, ROUNDS = 250, BURST = 5, LENGTH = 100, SERVER_KEY = 0x5E4BE4 };

typedef struct {
    SOCKET socket;
    struct sockaddr_in address;
    int rounds;             /* which have been answered */
    int answers;            /* of the round that runs */
    int is_answered[BURST];
} CLIENT;

static HANDLE port;
static SOCKET server;
static CLIENT clients[CLIENTS];

/* The answer that could not be sent, if there is one. */
static struct {
    int size;
    char bytes[LENGTH];
    struct sockaddr_in to;
} unsent;

static int packets, datagrams;

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
        operation == SOCK_NOTIFY_OP_ENABLE ? SOCK_NOTIFY_TRIGGER_EDGE | SOCK_NOTIFY_TRIGGER_PERSISTENT : 0;
    outcome = ProcessSocketNotifications(port, 1, &registration, 0, 0, NULL, NULL);
    if (outcome == ERROR_SUCCESS) {
        outcome = registration.registrationResult;
    }
    if (outcome != ERROR_SUCCESS) {
        SetLastError(outcome);
        fail("changing a registration");
    }
}

static SOCKET datagram_socket(ULONG_PTR key)
{
    u_long on = 1;
    SOCKET made = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    if (made == INVALID_SOCKET || ioctlsocket(made, FIONBIO, &on) != 0) {
        fail("making a socket");
    }
    change(made, key, SOCK_NOTIFY_OP_ENABLE, SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_OUT);
    return made;
}

/* Binds to a free port of this machine. */
static struct sockaddr_in bind_it(SOCKET socket)
{
    struct sockaddr_in address;
    int length = (int)sizeof address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(socket, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(socket, (struct sockaddr *)&address, &length) != 0) {
        fail("binding a socket");
    }
    return address;
}

/* Sends the pending answer. Returns 0 if the socket is full. */
static int flush(void)
{
    if (unsent.size > 0) {
        if (sendto(server, unsent.bytes, unsent.size, 0, (struct sockaddr *)&unsent.to, sizeof unsent.to) < 0) {
            if (WSAGetLastError() == WSAEWOULDBLOCK) {
                return 0;
            }
            fail("sendto of the server");
        }
        unsent.size = 0;
    }
    return 1;
}

/* Answers every available datagram. It stops only when there is nothing left to read or no room for
 * an answer; an edge of IN or OUT then continues it. */
static void serve(void)
{
    while (flush()) {
        char bytes[LENGTH];
        int length = (int)sizeof unsent.to, i;
        int size = (int)recvfrom(server, bytes, sizeof bytes, 0, (struct sockaddr *)&unsent.to, &length);
        if (size < 0) {
            if (WSAGetLastError() == WSAEWOULDBLOCK) {
                return;
            }
            fail("recvfrom of the server");
        }
        for (i = 0; i < size; i++) {
            unsent.bytes[i] = bytes[size - 1 - i];
        }
        unsent.size = size;
        datagrams++;
    }
}

/* What client `which` sends as datagram `number` of its present round. */
static void compose(int which, int number, char *bytes)
{
    int i;
    memset(bytes, 0, LENGTH);
    bytes[0] = (char)number;
    for (i = 1; i < LENGTH; i++) {
        bytes[i] = (char)(which * 50 + clients[which].rounds * 3 + number * 11 + i);
    }
}

static void send_round(int which, const struct sockaddr_in *to)
{
    char bytes[LENGTH];
    int number;
    for (number = 0; number < BURST; number++) {
        compose(which, number, bytes);
        if (sendto(clients[which].socket, bytes, LENGTH, 0, (const struct sockaddr *)to, sizeof *to) != LENGTH) {
            fail("sendto of a client");
        }
    }
}

/* Takes all available answers. After the last one of a round, the next round starts. */
static void receive_answers(int which, const struct sockaddr_in *to)
{
    CLIENT *client = &clients[which];
    for (;;) {
        char bytes[LENGTH + 1], expected[LENGTH];
        int number, i;
        int size = (int)recvfrom(client->socket, bytes, sizeof bytes, 0, NULL, NULL);
        if (size < 0) {
            if (WSAGetLastError() == WSAEWOULDBLOCK) {
                return;
            }
            fail("recvfrom of a client");
        }
        number = size == LENGTH ? bytes[LENGTH - 1] : -1;
        if (number < 0 || number >= BURST || client->is_answered[number]) {
            fprintf(stderr, "client %d got an answer that it did not wait for\n", which);
            exit(1);
        }
        compose(which, number, expected);
        for (i = 0; i < LENGTH; i++) {
            if (bytes[i] != expected[LENGTH - 1 - i]) {
                fprintf(stderr, "client %d: byte %d of answer %d is wrong\n", which, i, number);
                exit(1);
            }
        }
        client->is_answered[number] = 1;
        if (++client->answers == BURST) {
            memset(client->is_answered, 0, sizeof client->is_answered);
            client->answers = 0;
            if (++client->rounds < ROUNDS) {
                send_round(which, to);
            } else {
                change(client->socket, 0, SOCK_NOTIFY_OP_REMOVE, 0);
                return;
            }
        }
    }
}

int main(void)
{
    WSADATA data;
    struct sockaddr_in address;
    int which, finished = 0, is_over = 0;

    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) {
        fail("WSAStartup");
    }
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 1);
    if (port == NULL) {
        fail("CreateIoCompletionPort");
    }
    server = datagram_socket(SERVER_KEY); /* registered, and only then bound */
    address = bind_it(server);
    for (which = 0; which < CLIENTS; which++) {
        clients[which].socket = datagram_socket((ULONG_PTR)which);
        clients[which].address = bind_it(clients[which].socket);
        send_round(which, &address);
    }

    while (!is_over) {
        OVERLAPPED_ENTRY entries[2 * CLIENTS];
        UINT32 count, i;
        DWORD outcome = ProcessSocketNotifications(port, 0, NULL, 30000, 2 * CLIENTS, entries, &count);
        if (outcome != ERROR_SUCCESS) {
            SetLastError(outcome);
            fail("waiting");
        }
        for (i = 0; i < count; i++) {
            UINT32 events = SocketNotificationRetrieveEvents(&entries[i]);
            packets++;
            if (entries[i].lpCompletionKey == SERVER_KEY) {
                if (events & SOCK_NOTIFY_EVENT_REMOVE) {
                    closesocket(server);
                    is_over = 1;
                } else {
                    serve();
                }
                continue;
            }
            which = (int)entries[i].lpCompletionKey;
            if (events & SOCK_NOTIFY_EVENT_REMOVE) {
                closesocket(clients[which].socket);
                if (++finished == CLIENTS) {
                    change(server, 0, SOCK_NOTIFY_OP_REMOVE, 0);
                }
            } else if (clients[which].rounds < ROUNDS) {
                receive_answers(which, &address);
            }
        }
    }

    printf("%d datagrams, %d expected; each answer right; %d packets\n", datagrams, CLIENTS * ROUNDS * BURST,
           packets);
    if (datagrams != CLIENTS * ROUNDS * BURST) {
        return 1;
    }
    CloseHandle(port);
    WSACleanup();
    return 0;
}
