/* The shape of a game server: one datagram socket with hundreds of WSARecvFrom in flight, a few
 * threads around GetQueuedCompletionStatus, each of which answers with WSASendTo and posts the
 * receive again. Closing the socket ends it: each receive then makes its packet, even one posted at
 * just that moment.
 *
 * The test checks the content and the number of datagrams: each is taken once, and answered once,
 * to its sender. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include "check.h"
#include "overlapped.h"

enum { RECEIVES = 300, WORKERS = 2, CLIENTS = 3, WINDOW = 8, ROUNDS = 200, LENGTH = 200 };

typedef struct DATAGRAM {
    UINT32 client, number;
    unsigned char bytes[LENGTH];
} DATAGRAM;

typedef struct TRANSFER {
    OVERLAPPED overlapped;
    int is_receive;
    WSABUF buffer;
    DATAGRAM datagram;
    struct sockaddr_in peer;
    int peer_size;
    DWORD flags;
} TRANSFER;

static HANDLE port;
static SOCKET server;
static struct sockaddr_in address;
static volatile LONG in_flight, received, answered, is_over;

static int rounds(void)
{
    return is_slow() ? ROUNDS / 20 : ROUNDS;
}

static unsigned char byte_of(UINT32 client, UINT32 number, int place)
{
    return (unsigned char)(client * 50 + number * 3 + (UINT32)place);
}

/* ---- the server --------------------------------------------------------------------------------- */

/* The thread that ends the last one sends all home. */
static void give_up(TRANSFER *context)
{
    int place;
    free(context);
    if (InterlockedDecrement(&in_flight) == 0)
        for (place = 0; place < WORKERS; place++)
            CHECK(PostQueuedCompletionStatus(port, 0, 0, NULL));
}

static void post_receive(TRANSFER *context)
{
    context->overlapped = fresh(NULL);
    context->is_receive = 1;
    context->buffer = buffer_of(&context->datagram, sizeof context->datagram);
    context->peer_size = (int)sizeof context->peer;
    context->flags = 0;
    if (WSARecvFrom(server, &context->buffer, 1, NULL, &context->flags, (struct sockaddr *)&context->peer,
                    &context->peer_size, &context->overlapped, NULL) != 0 &&
        WSAGetLastError() != WSA_IO_PENDING) {
        CHECK(is_over); /* nothing else may refuse it */
        give_up(context);
    }
}

static void answer(const TRANSFER *question)
{
    TRANSFER *context = (TRANSFER *)malloc(sizeof *context);
    int place;
    CHECK(context != NULL);
    *context = *question;
    context->overlapped = fresh(NULL);
    context->is_receive = 0;
    for (place = 0; place < LENGTH; place++)
        context->datagram.bytes[place] ^= 0xFF;
    context->buffer = buffer_of(&context->datagram, sizeof context->datagram);
    InterlockedIncrement(&in_flight);
    if (WSASendTo(server, &context->buffer, 1, NULL, 0, (struct sockaddr *)&context->peer, context->peer_size,
                  &context->overlapped, NULL) != 0)
        CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
}

static void check_content(const DATAGRAM *datagram, unsigned char mask)
{
    int place;
    CHECK(datagram->client < CLIENTS);
    for (place = 0; place < LENGTH; place++)
        CHECK_IS(datagram->bytes[place] ^ mask, byte_of(datagram->client, datagram->number, place));
}

static DWORD WINAPI work(LPVOID argument)
{
    (void)argument;
    for (;;) {
        DWORD bytes = UNTOUCHED;
        ULONG_PTR key = UNTOUCHED;
        LPOVERLAPPED overlapped = NULL;
        BOOL done = GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, SOON);
        TRANSFER *context;
        if (overlapped == NULL) {
            CHECK(done && key == 0);
            return 0;
        }
        context = CONTAINING_RECORD(overlapped, TRANSFER, overlapped);
        if (!done) {
            CHECK(is_over);
            give_up(context);
            continue;
        }
        CHECK_IS(bytes, sizeof context->datagram);
        CHECK_IS(key, 1);
        if (!context->is_receive) {
            InterlockedIncrement(&answered);
            give_up(context);
            continue;
        }
        CHECK_IS(context->peer_size, sizeof context->peer);
        check_content(&context->datagram, 0);
        InterlockedIncrement(&received);
        answer(context);
        post_receive(context);
    }
}

/* ---- the clients -------------------------------------------------------------------------------- */

static DWORD WINAPI play(LPVOID argument)
{
    UINT32 client = (UINT32)(UINT_PTR)argument;
    SOCKET s = udp_socket();
    DWORD time = SOON;
    int round;
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (const char *)&time, sizeof time), 0);
    for (round = 0; round < rounds(); round++) {
        UINT32 first = (UINT32)round * WINDOW, number, seen = 0;
        DATAGRAM datagram;
        for (number = first; number < first + WINDOW; number++) {
            int place;
            datagram.client = client;
            datagram.number = number;
            for (place = 0; place < LENGTH; place++)
                datagram.bytes[place] = byte_of(client, number, place);
            send_to(s, (const char *)&datagram, sizeof datagram, &address);
        }
        /* In any order: there are several threads. */
        while (seen != (1u << WINDOW) - 1) {
            struct sockaddr_in from;
            int size = (int)sizeof from;
            CHECK_IS(recvfrom(s, (char *)&datagram, sizeof datagram, 0, (struct sockaddr *)&from, &size),
                     sizeof datagram);
            CHECK_IS(from.sin_port, address.sin_port);
            CHECK_IS(datagram.client, client);
            CHECK(datagram.number - first < WINDOW && !(seen & 1u << (datagram.number - first)));
            check_content(&datagram, 0xFF);
            seen |= 1u << (datagram.number - first);
        }
    }
    CHECK_IS(closesocket(s), 0);
    return 0;
}

int main(void)
{
    HANDLE workers[WORKERS], clients[CLIENTS];
    LONG all;
    int place;
    start();
    all = (LONG)(CLIENTS * WINDOW * rounds());
    port = new_port(WORKERS);
    server = udp_socket();
    address = bind_to_loopback(server);
    associate(server, port, 1);
    in_flight = RECEIVES;
    for (place = 0; place < RECEIVES; place++) {
        TRANSFER *context = (TRANSFER *)malloc(sizeof *context);
        CHECK(context != NULL);
        post_receive(context);
    }
    for (place = 0; place < WORKERS; place++)
        workers[place] = CreateThread(NULL, 0, work, NULL, 0, NULL);
    for (place = 0; place < CLIENTS; place++)
        clients[place] = CreateThread(NULL, 0, play, (LPVOID)(UINT_PTR)place, 0, NULL);
    CHECK_IS(WaitForMultipleObjects(CLIENTS, clients, TRUE, SOON * 5), WAIT_OBJECT_0);
    InterlockedExchange(&is_over, 1);
    CHECK_IS(closesocket(server), 0);
    CHECK_IS(WaitForMultipleObjects(WORKERS, workers, TRUE, SOON), WAIT_OBJECT_0);
    CHECK_IS(in_flight, 0);
    CHECK_IS(received, all);
    CHECK(answered <= all && answered > all - WINDOW * CLIENTS); /* the last ones may lose their socket */
    for (place = 0; place < WORKERS; place++)
        CHECK(CloseHandle(workers[place]));
    for (place = 0; place < CLIENTS; place++)
        CHECK(CloseHandle(clients[place]));
    CHECK(CloseHandle(port));
    return finish();
}
