/* One thread and one port replacing poll: a listener and its connections are registered once, and
 * conditions are reported repeatedly while they hold (level, persistent).
 *
 * A client connects, sends, shuts down its sending half and reads the echo. The server returns
 * every byte, and removes each registration before it closes the socket. The memory behind a key is
 * freed after its last packet, REMOVE. Server and client are sockets of the same thread.
 *
 * The source is written for the Windows interface and is independent of the system. */
#include <winsock2.h>
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 3, BYTES = 200000, ROOM = 8 };

/* The memory behind a key: a socket and its state. */
typedef struct ENDPOINT {
    enum { LISTENER, CONNECTION, CLIENT } kind;
    SOCKET socket;
    int is_ended;           /* REMOVE was asked for */
    int first, last;        /* a connection: what of the buffer is still to be sent back */
    int has_seen_end;       /* a connection: nothing more will come */
    char buffer[4096];
    int sent, received;     /* a client */
} ENDPOINT;

static HANDLE port;
static ENDPOINT *clients[CLIENTS];
static int endpoints, removals, finished_clients;

static void fail(const char *what)
{
    fprintf(stderr, "%s: error %u\n", what, (unsigned)GetLastError());
    exit(1);
}

/* The byte at this place of what client number `which` sends. */
static char byte_of(int which, int place)
{
    return (char)((place * 31 + place / 251 + which * 7) & 0xFF);
}

/* Asks for one change of one socket. The call and the change can fail, each in its own way. */
static void change(ENDPOINT *endpoint, UINT8 operation, UINT16 events)
{
    SOCK_NOTIFY_REGISTRATION registration;
    DWORD outcome;
    memset(&registration, 0, sizeof registration);
    registration.socket = endpoint->socket;
    registration.completionKey = endpoint;
    registration.operation = operation;
    registration.eventFilter = events;
    registration.triggerFlags =
        operation == SOCK_NOTIFY_OP_ENABLE ? SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_PERSISTENT : 0;
    outcome = ProcessSocketNotifications(port, 1, &registration, 0, 0, NULL, NULL);
    if (outcome == ERROR_SUCCESS) {
        outcome = registration.registrationResult;
    }
    if (outcome != ERROR_SUCCESS) {
        SetLastError(outcome);
        fail("changing a registration");
    }
}

static ENDPOINT *endpoint_of(SOCKET socket, int kind, UINT16 events)
{
    u_long on = 1;
    ENDPOINT *endpoint = (ENDPOINT *)calloc(1, sizeof *endpoint);
    if (endpoint == NULL || ioctlsocket(socket, FIONBIO, &on) != 0) {
        fail("making an endpoint");
    }
    endpoint->kind = kind;
    endpoint->socket = socket;
    endpoints++;
    change(endpoint, SOCK_NOTIFY_OP_ENABLE, events);
    return endpoint;
}

/* The first step of the end; the last is taken when REMOVE arrives. */
static void end(ENDPOINT *endpoint)
{
    if (!endpoint->is_ended) {
        endpoint->is_ended = 1;
        change(endpoint, SOCK_NOTIFY_OP_REMOVE, 0);
    }
}

static void accept_all(ENDPOINT *listener)
{
    for (;;) {
        SOCKET accepted = accept(listener->socket, NULL, NULL);
        if (accepted == INVALID_SOCKET) {
            if (WSAGetLastError() != WSAEWOULDBLOCK) {
                fail("accept");
            }
            return;
        }
        endpoint_of(accepted, CONNECTION, SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_HANGUP);
    }
}

/* Reads while there is room, and sends the data back. The requested events depend on the buffer:
 * with a full one, data is not reported; with an empty one, writability is not. */
static void echo(ENDPOINT *connection)
{
    UINT16 events;
    int count;
    if (connection->first == connection->last && !connection->has_seen_end) {
        count = (int)recv(connection->socket, connection->buffer, sizeof connection->buffer, 0);
        if (count > 0) {
            connection->first = 0;
            connection->last = count;
        } else if (count == 0) {
            connection->has_seen_end = 1;
        } else if (WSAGetLastError() != WSAEWOULDBLOCK) {
            fail("recv of the server");
        }
    }
    if (connection->first < connection->last) {
        count = (int)send(connection->socket, connection->buffer + connection->first,
                          connection->last - connection->first, 0);
        if (count > 0) {
            connection->first += count;
        } else if (WSAGetLastError() != WSAEWOULDBLOCK) {
            fail("send of the server");
        }
    }
    if (connection->has_seen_end && connection->first == connection->last) {
        end(connection);
        return;
    }
    events = connection->first < connection->last
                 ? SOCK_NOTIFY_REGISTER_EVENT_OUT
                 : SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_HANGUP;
    change(connection, SOCK_NOTIFY_OP_ENABLE, events);
}

static void talk(ENDPOINT *client, int which, UINT32 events)
{
    char buffer[1024];
    int count, i;
    if ((events & SOCK_NOTIFY_EVENT_OUT) && client->sent < BYTES) {
        count = BYTES - client->sent;
        if (count > (int)sizeof buffer) {
            count = (int)sizeof buffer;
        }
        for (i = 0; i < count; i++) {
            buffer[i] = byte_of(which, client->sent + i);
        }
        count = (int)send(client->socket, buffer, count, 0);
        if (count > 0) {
            client->sent += count;
        } else if (WSAGetLastError() != WSAEWOULDBLOCK) {
            fail("send of a client");
        }
        if (client->sent == BYTES) {
            if (shutdown(client->socket, SD_SEND) != 0) {
                fail("shutdown of a client");
            }
            change(client, SOCK_NOTIFY_OP_ENABLE,
                   SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_HANGUP);
        }
    }
    if (events & (SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_HANGUP)) {
        count = (int)recv(client->socket, buffer, sizeof buffer, 0);
        if (count < 0 && WSAGetLastError() != WSAEWOULDBLOCK) {
            fail("recv of a client");
        }
        for (i = 0; i < count; i++) {
            if (buffer[i] != byte_of(which, client->received + i)) {
                fprintf(stderr, "byte %d of client %d came back changed\n", client->received + i, which);
                exit(1);
            }
        }
        if (count > 0) {
            client->received += count;
        } else if (count == 0) {
            finished_clients++;
            end(client);
        }
    }
}

/* Deals with one packet. */
static void handle(OVERLAPPED_ENTRY *entry, ENDPOINT *listener)
{
    ENDPOINT *endpoint = (ENDPOINT *)entry->lpCompletionKey;
    UINT32 events = SocketNotificationRetrieveEvents(entry);
    int which;
    if (events & SOCK_NOTIFY_EVENT_REMOVE) { /* the last packet of this key */
        closesocket(endpoint->socket);
        if (endpoint->kind == CLIENT) {
            if (endpoint->sent != BYTES || endpoint->received != BYTES) {
                fprintf(stderr, "a client has sent %d bytes and got %d back\n", endpoint->sent,
                        endpoint->received);
                exit(1);
            }
        }
        free(endpoint);
        removals++;
        return;
    }
    if (endpoint->is_ended) {
        return; /* a packet from before; REMOVE follows */
    }
    if (events & SOCK_NOTIFY_EVENT_ERR) {
        fprintf(stderr, "an error on a socket of kind %d\n", (int)endpoint->kind);
        exit(1);
    }
    switch (endpoint->kind) {
    case LISTENER:
        accept_all(endpoint);
        break;
    case CONNECTION:
        echo(endpoint);
        break;
    case CLIENT:
        for (which = 0; clients[which] != endpoint; which++) {
        }
        talk(endpoint, which, events);
        break;
    }
    if (finished_clients == CLIENTS) {
        end(listener);
    }
}

int main(void)
{
    WSADATA data;
    struct sockaddr_in address;
    int length = (int)sizeof address, which;
    SOCKET socket_to_listen;
    ENDPOINT *listener;

    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) {
        fail("WSAStartup");
    }
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 1);
    if (port == NULL) {
        fail("CreateIoCompletionPort");
    }
    socket_to_listen = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (socket_to_listen == INVALID_SOCKET ||
        bind(socket_to_listen, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(socket_to_listen, (struct sockaddr *)&address, &length) != 0 ||
        listen(socket_to_listen, SOMAXCONN) != 0) {
        fail("making the listener");
    }
    listener = endpoint_of(socket_to_listen, LISTENER, SOCK_NOTIFY_REGISTER_EVENT_IN);
    for (which = 0; which < CLIENTS; which++) {
        SOCKET connected = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
        if (connected == INVALID_SOCKET || connect(connected, (struct sockaddr *)&address, sizeof address) != 0) {
            fail("connecting a client");
        }
        clients[which] = endpoint_of(connected, CLIENT,
                                     SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_OUT |
                                         SOCK_NOTIFY_REGISTER_EVENT_HANGUP);
    }

    while (removals < endpoints) {
        OVERLAPPED_ENTRY entries[ROOM];
        UINT32 count, i;
        DWORD outcome = ProcessSocketNotifications(port, 0, NULL, 30000, ROOM, entries, &count);
        if (outcome != ERROR_SUCCESS) {
            SetLastError(outcome);
            fail("waiting");
        }
        for (i = 0; i < count; i++) {
            handle(&entries[i], listener);
        }
    }

    printf("%d clients, %d bytes each, all back and unchanged; %d registrations, each ended by REMOVE\n",
           CLIENTS, BYTES, removals);
    if (endpoints != 1 + 2 * CLIENTS || finished_clients != CLIENTS) {
        fprintf(stderr, "%d endpoints were made, %d clients have finished\n", endpoints, finished_clients);
        return 1;
    }
    CloseHandle(port);
    WSACleanup();
    return 0;
}
