/* The classic overlapped server: a context for each operation, with its OVERLAPPED first; accepts
 * posted before any client connects; threads in a loop around GetQueuedCompletionStatus; and a new
 * receive after each send. 60 clients check their echoes.
 *
 * A connection has one operation in flight at a time, so its memory belongs to the thread with its
 * packet, and needs no lock. When all clients have disconnected, the listener is closed, which ends
 * the remaining accepts, and a posted packet announces the end. Each thread passes it on to the
 * next and returns.
 *
 * The source is written for the Windows interface and is independent of the system. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ACCEPTS = 8, CLIENTS = 60, CLIENT_THREADS = 6, BYTES = 20000 };

#define KEY_LISTENER ((ULONG_PTR)1)
#define KEY_CONNECTION ((ULONG_PTR)2)
#define KEY_OVER ((ULONG_PTR)3)

#define ADDRESS_BLOCK ((DWORD)sizeof(struct sockaddr_in) + 16)

typedef enum { ACCEPT, RECEIVE, SEND } KIND;

typedef struct {
    OVERLAPPED overlapped;
    KIND kind;
    SOCKET socket;
    WSABUF buffer;
    char bytes[2048];
} IO_CONTEXT;

static HANDLE port;
static SOCKET listener;
static struct sockaddr_in address;
static LPFN_ACCEPTEX accept_ex;
static LPFN_GETACCEPTEXSOCKADDRS get_addresses;
static volatile LONG accepted, ended, contexts, bytes_in, bytes_out;

static void fail(const char *what)
{
    fprintf(stderr, "%s: error %u\n", what, (unsigned)GetLastError());
    exit(1);
}

static SOCKET new_socket(void)
{
    SOCKET s = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED);
    if (s == INVALID_SOCKET)
        fail("making a socket");
    return s;
}

/* ---- the server ------------------------------------------------------------------------------- */

static void post_accept(IO_CONTEXT *context)
{
    DWORD received;
    memset(&context->overlapped, 0, sizeof context->overlapped);
    context->kind = ACCEPT;
    context->socket = new_socket();
    if (!accept_ex(listener, context->socket, context->bytes, 0, ADDRESS_BLOCK, ADDRESS_BLOCK, &received,
                   &context->overlapped) &&
        WSAGetLastError() != WSA_IO_PENDING)
        fail("AcceptEx");
}

static void end_connection(IO_CONTEXT *context)
{
    closesocket(context->socket);
    free(context);
    InterlockedDecrement(&contexts);
    InterlockedIncrement(&ended);
}

static void post_receive(IO_CONTEXT *context)
{
    DWORD flags = 0;
    memset(&context->overlapped, 0, sizeof context->overlapped);
    context->kind = RECEIVE;
    context->buffer.buf = context->bytes;
    context->buffer.len = sizeof context->bytes;
    /* Finished immediately or later, it makes a packet either way. */
    if (WSARecv(context->socket, &context->buffer, 1, NULL, &flags, &context->overlapped, NULL) == SOCKET_ERROR &&
        WSAGetLastError() != WSA_IO_PENDING)
        end_connection(context);
}

static void post_send(IO_CONTEXT *context, DWORD count)
{
    memset(&context->overlapped, 0, sizeof context->overlapped);
    context->kind = SEND;
    context->buffer.len = count;
    if (WSASend(context->socket, &context->buffer, 1, NULL, 0, &context->overlapped, NULL) == SOCKET_ERROR &&
        WSAGetLastError() != WSA_IO_PENDING)
        end_connection(context);
}

/* A connection without any operation yet. */
static IO_CONTEXT *new_connection(IO_CONTEXT *accepting)
{
    struct sockaddr *own, *peer;
    INT own_size, peer_size;
    IO_CONTEXT *context = (IO_CONTEXT *)malloc(sizeof *context);
    if (!context)
        fail("memory");
    if (setsockopt(accepting->socket, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (const char *)&listener,
                   sizeof listener) != 0)
        fail("SO_UPDATE_ACCEPT_CONTEXT");
    get_addresses(accepting->bytes, 0, ADDRESS_BLOCK, ADDRESS_BLOCK, &own, &own_size, &peer, &peer_size);
    if (peer_size != (INT)sizeof address || peer->sa_family != AF_INET)
        fail("the peer's address");
    context->socket = accepting->socket;
    if (!CreateIoCompletionPort((HANDLE)context->socket, port, KEY_CONNECTION, 0))
        fail("associating a connection");
    InterlockedIncrement(&contexts);
    InterlockedIncrement(&accepted);
    return context;
}

static DWORD WINAPI serve(LPVOID argument)
{
    (void)argument;
    for (;;) {
        IO_CONTEXT *connection;
        DWORD count = 0;
        ULONG_PTR key = 0;
        LPOVERLAPPED overlapped = NULL;
        BOOL is_well = GetQueuedCompletionStatus(port, &count, &key, &overlapped, INFINITE);
        IO_CONTEXT *context = (IO_CONTEXT *)overlapped;
        if (!is_well && !overlapped)
            fail("the wait");
        if (key == KEY_OVER) {
            PostQueuedCompletionStatus(port, 0, KEY_OVER, NULL);
            return 0;
        }
        switch (context->kind) {
        case ACCEPT:
            if (!is_well) { /* the listener was closed */
                closesocket(context->socket);
                free(context);
                InterlockedDecrement(&contexts);
                break;
            }
            connection = new_connection(context);
            /* Before the client can get on: when the last one has gone the listener is closed. */
            post_accept(context);
            post_receive(connection);
            break;
        case RECEIVE:
            if (!is_well || count == 0) {
                end_connection(context);
                break;
            }
            InterlockedExchangeAdd(&bytes_in, (LONG)count);
            post_send(context, count);
            break;
        case SEND:
            if (!is_well) {
                end_connection(context);
                break;
            }
            InterlockedExchangeAdd(&bytes_out, (LONG)count);
            post_receive(context);
            break;
        }
    }
}

static void look_up(GUID guid, void *function, DWORD size)
{
    DWORD bytes;
    if (WSAIoctl(listener, SIO_GET_EXTENSION_FUNCTION_POINTER, &guid, sizeof guid, function, size, &bytes, NULL,
                 NULL) != 0)
        fail("looking an extension function up");
}

static void listen_and_post(void)
{
    GUID accept_guid = WSAID_ACCEPTEX, addresses_guid = WSAID_GETACCEPTEXSOCKADDRS;
    int size = (int)sizeof address, place;
    listener = new_socket();
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        fail("listening");
    look_up(accept_guid, &accept_ex, sizeof accept_ex);
    look_up(addresses_guid, &get_addresses, sizeof get_addresses);
    if (!CreateIoCompletionPort((HANDLE)listener, port, KEY_LISTENER, 0))
        fail("associating the listener");
    for (place = 0; place < ACCEPTS; place++) {
        IO_CONTEXT *context = (IO_CONTEXT *)malloc(sizeof *context);
        if (!context)
            fail("memory");
        InterlockedIncrement(&contexts);
        post_accept(context);
    }
}

/* ---- the clients ------------------------------------------------------------------------------ */

static char byte_of(int client, int place)
{
    return (char)(client * 31 + place * 7 + place / 251);
}

static void talk(int client)
{
    char out[1500], in[1500];
    int sent = 0, received = 0;
    SOCKET s = new_socket();
    if (connect(s, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connecting");
    while (received < BYTES) {
        int count = BYTES - sent < (int)sizeof out ? BYTES - sent : (int)sizeof out, place;
        for (place = 0; place < count; place++)
            out[place] = byte_of(client, sent + place);
        if (count > 0 && send(s, out, count, 0) != count)
            fail("sending");
        sent += count;
        while (received < sent) {
            int got = (int)recv(s, in, sizeof in, 0);
            if (got <= 0)
                fail("receiving");
            for (place = 0; place < got; place++)
                if (in[place] != byte_of(client, received + place)) {
                    fprintf(stderr, "client %d: byte %d is another one\n", client, received + place);
                    exit(1);
                }
            received += got;
        }
    }
    closesocket(s);
}

static DWORD WINAPI be_clients(LPVOID argument)
{
    int first = (int)(INT_PTR)argument, client;
    for (client = first; client < CLIENTS; client += CLIENT_THREADS)
        talk(client);
    return 0;
}

int main(void)
{
    WSADATA data;
    HANDLE servers[THREADS], clients[CLIENT_THREADS];
    int place, waits;
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0)
        return 1;
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    if (!port)
        fail("making the port");
    listen_and_post();
    for (place = 0; place < THREADS; place++)
        servers[place] = CreateThread(NULL, 0, serve, NULL, 0, NULL);
    for (place = 0; place < CLIENT_THREADS; place++)
        clients[place] = CreateThread(NULL, 0, be_clients, (LPVOID)(INT_PTR)place, 0, NULL);
    if (WaitForMultipleObjects(CLIENT_THREADS, clients, TRUE, 60000) != WAIT_OBJECT_0)
        fail("waiting for the clients");
    closesocket(listener);
    for (waits = 0; contexts > 0 || ended < CLIENTS; waits++) {
        if (waits > 6000)
            fail("waiting for the last contexts");
        Sleep(10);
    }
    PostQueuedCompletionStatus(port, 0, KEY_OVER, NULL);
    if (WaitForMultipleObjects(THREADS, servers, TRUE, 60000) != WAIT_OBJECT_0)
        fail("waiting for the servers");
    for (place = 0; place < CLIENT_THREADS; place++)
        CloseHandle(clients[place]);
    for (place = 0; place < THREADS; place++)
        CloseHandle(servers[place]);
    CloseHandle(port);
    printf("%d connections, %d bytes in, %d bytes out\n", (int)accepted, (int)bytes_in, (int)bytes_out);
    WSACleanup();
    return accepted == CLIENTS && bytes_in == CLIENTS * BYTES && bytes_out == CLIENTS * BYTES ? 0 : 1;
}
