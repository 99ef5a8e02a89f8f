/* A server of static files: sockets and files on one port, and threads that execute the next step
 * of whichever operation has ended. An accept includes the request (AcceptEx with first data). A
 * small file is read (ReadFile) and sent (WSASend) alternately; TransmitFile sends a large one,
 * preceded by the header and followed by the end of the stream.
 *
 * A client requests "GET name" and a new line, and gets "200", the size, a new line and the file;
 * or "404 0". 48 clients compare the answers with the files. Others are rude: they send nothing,
 * half a request or nonsense, do not read their answers, or reset the connection. None of them
 * harms the server.
 *
 * A connection has one operation in flight at a time, so its context belongs to the thread with its
 * packet, and needs no lock.
 *
 * The source is written for the Windows interface and is independent of the system. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ACCEPTS = 8, CLIENTS = 48, RUDE = 24, CLIENT_THREADS = 6, FILES = 5, CHUNK = 16384, SMALL = 100000 };

#define KEY_LISTENER ((ULONG_PTR)1)
#define KEY_CONNECTION ((ULONG_PTR)2)
#define KEY_FILE ((ULONG_PTR)3)
#define KEY_OVER ((ULONG_PTR)4)

#define ADDRESS_BLOCK ((DWORD)sizeof(struct sockaddr_in) + 16)

typedef enum { ACCEPT, REQUEST, HEAD, READ, SEND, TRANSMIT } STEP;

typedef struct {
    OVERLAPPED overlapped;
    STEP step;
    SOCKET socket;
    HANDLE file;
    LONGLONG offset, size;
    DWORD filled;
    char head[64];
    TRANSMIT_FILE_BUFFERS beside;
    WSABUF buffer;
    char bytes[CHUNK];
} IO_CONTEXT;

static const int SIZES[FILES] = {0, 1, 5000, 70000, 3000000};

static HANDLE port;
static SOCKET listener;
static struct sockaddr_in address;
static char folder[MAX_PATH];
static volatile LONG contexts, answered, transmitted, refused, is_closing;

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

static char byte_of(int file, int place)
{
    return (char)(file * 31 + place * 7 + place / 251);
}

/* ---- the server ------------------------------------------------------------------------------- */

static void end_connection(IO_CONTEXT *context)
{
    if (context->file != INVALID_HANDLE_VALUE)
        CloseHandle(context->file);
    closesocket(context->socket);
    free(context);
    InterlockedDecrement(&contexts);
}

static void post_accept(IO_CONTEXT *context)
{
    DWORD received;
    memset(&context->overlapped, 0, sizeof context->overlapped);
    context->step = ACCEPT;
    context->socket = new_socket();
    context->file = INVALID_HANDLE_VALUE;
    context->filled = 0;
    if (!AcceptEx(listener, context->socket, context->bytes, CHUNK - 2 * ADDRESS_BLOCK, ADDRESS_BLOCK,
                  ADDRESS_BLOCK, &received, &context->overlapped) &&
        WSAGetLastError() != ERROR_IO_PENDING) {
        if (!is_closing)
            fail("AcceptEx");
        end_connection(context);
    }
}

/* Checks a call that starts an operation: if it fails immediately, no packet arrives. */
static void begun(IO_CONTEXT *context, int is_well)
{
    if (!is_well && GetLastError() != ERROR_IO_PENDING)
        end_connection(context);
}

static void begin(IO_CONTEXT *context, STEP step)
{
    memset(&context->overlapped, 0, sizeof context->overlapped);
    context->step = step;
}

static void receive(IO_CONTEXT *context)
{
    DWORD flags = 0;
    begin(context, REQUEST);
    context->buffer.buf = context->bytes + context->filled;
    context->buffer.len = CHUNK - 1 - context->filled;
    begun(context, WSARecv(context->socket, &context->buffer, 1, NULL, &flags, &context->overlapped, NULL) == 0);
}

static void send_bytes(IO_CONTEXT *context, STEP step, char *bytes, DWORD count)
{
    begin(context, step);
    context->buffer.buf = bytes;
    context->buffer.len = count;
    begun(context, WSASend(context->socket, &context->buffer, 1, NULL, 0, &context->overlapped, NULL) == 0);
}

/* The next chunk; after the last one the stream ends. */
static void read_on(IO_CONTEXT *context)
{
    if (context->offset == context->size) {
        shutdown(context->socket, SD_SEND);
        end_connection(context);
        return;
    }
    begin(context, READ);
    context->overlapped.Offset = (DWORD)context->offset;
    context->overlapped.OffsetHigh = (DWORD)(context->offset >> 32);
    begun(context, ReadFile(context->file, context->bytes, CHUNK, NULL, &context->overlapped));
}

static void answer(IO_CONTEXT *context, const char *name)
{
    char path[2 * MAX_PATH];
    LARGE_INTEGER size;
    size.QuadPart = 0;
    if (!strpbrk(name, "/\\") && *name != '.' && strlen(name) < 64) {
        snprintf(path, sizeof path, "%s\\%s", folder, name);
        context->file = CreateFileA(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING,
                                    FILE_FLAG_OVERLAPPED | FILE_FLAG_SEQUENTIAL_SCAN, NULL);
    }
    if (context->file != INVALID_HANDLE_VALUE &&
        (!GetFileSizeEx(context->file, &size) || !CreateIoCompletionPort(context->file, port, KEY_FILE, 0)))
        fail("opening a file");
    context->offset = 0;
    context->size = size.QuadPart;
    snprintf(context->head, sizeof context->head, "%s %lld\n",
             context->file == INVALID_HANDLE_VALUE ? "404" : "200", (long long)size.QuadPart);
    InterlockedIncrement(context->file == INVALID_HANDLE_VALUE ? &refused : &answered);
    if (context->size <= SMALL) {
        send_bytes(context, HEAD, context->head, (DWORD)strlen(context->head));
        return;
    }
    begin(context, TRANSMIT);
    memset(&context->beside, 0, sizeof context->beside);
    context->beside.Head = context->head;
    context->beside.HeadLength = (DWORD)strlen(context->head);
    begun(context, TransmitFile(context->socket, context->file, 0, 0, &context->overlapped, &context->beside,
                                TF_DISCONNECT));
}

/* Handles the request received so far. */
static void look_at_request(IO_CONTEXT *context, DWORD count)
{
    char *end;
    context->filled += count;
    context->bytes[context->filled] = 0;
    end = strchr(context->bytes, '\n');
    if (end) {
        *end = 0;
        answer(context, strncmp(context->bytes, "GET ", 4) == 0 ? context->bytes + 4 : ".");
    } else if (count == 0 || context->filled > 1000) {
        end_connection(context); /* the end of the stream, or no request */
    } else {
        receive(context);
    }
}

static void begin_connection(IO_CONTEXT *context, DWORD count)
{
    IO_CONTEXT *next = (IO_CONTEXT *)malloc(sizeof *next);
    if (!next)
        fail("memory");
    InterlockedIncrement(&contexts);
    post_accept(next);
    if (setsockopt(context->socket, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (const char *)&listener,
                   sizeof listener) != 0 ||
        !CreateIoCompletionPort((HANDLE)context->socket, port, KEY_CONNECTION, 0)) {
        end_connection(context); /* it was reset already */
        return;
    }
    look_at_request(context, count);
}

static DWORD WINAPI serve(LPVOID argument)
{
    (void)argument;
    for (;;) {
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
        if (context->step == ACCEPT && !is_well && !is_closing) {
            closesocket(context->socket); /* a client that has gone already */
            post_accept(context);
            continue;
        }
        if (!is_well) { /* reset, or the listener was closed */
            end_connection(context);
            continue;
        }
        switch (context->step) {
        case ACCEPT:
            begin_connection(context, count);
            break;
        case REQUEST:
            look_at_request(context, count);
            break;
        case HEAD:
            read_on(context);
            break;
        case READ:
            context->offset += count;
            send_bytes(context, SEND, context->bytes, count);
            break;
        case SEND:
            read_on(context);
            break;
        case TRANSMIT:
            if (count != context->size + context->beside.HeadLength)
                fail("a file that went in part");
            InterlockedIncrement(&transmitted);
            end_connection(context);
            break;
        }
    }
}

static void listen_and_post(void)
{
    int size = (int)sizeof address, place;
    listener = new_socket();
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        fail("listening");
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

static SOCKET new_connection(void)
{
    SOCKET s = new_socket();
    if (connect(s, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connecting");
    return s;
}

static void say(SOCKET s, const char *text)
{
    int length = (int)strlen(text);
    if (send(s, text, length, 0) != length)
        fail("sending");
}

/* Requests a file and compares the answer with it. Sends the request in one or two parts. */
static void ask(int client)
{
    int file = client % FILES, size = -1, got = 0, place = 0, part, at;
    char request[64], head[64], bytes[4096];
    SOCKET s = new_connection();
    snprintf(request, sizeof request, "GET file-%d\n", file);
    if (client % 3 == 0) {
        say(s, "GE");
        Sleep(1);
        say(s, request + 2);
    } else {
        say(s, request);
    }
    while ((part = (int)recv(s, bytes, sizeof bytes, 0)) > 0) {
        at = 0;
        while (size < 0 && at < part) {
            head[place++] = bytes[at];
            if (bytes[at++] == '\n') {
                head[place] = 0;
                if (sscanf(head, "200 %d\n", &size) != 1)
                    fail("the head of an answer");
            }
        }
        for (; at < part; at++, got++)
            if (bytes[at] != byte_of(file, got)) {
                fprintf(stderr, "file %d: byte %d is another one\n", file, got);
                exit(1);
            }
    }
    if (part != 0 || size != SIZES[file] || got != size) {
        fprintf(stderr, "file %d: %d bytes of %d, and %d\n", file, got, SIZES[file], part);
        exit(1);
    }
    closesocket(s);
}

static void expect(SOCKET s, const char *text)
{
    char bytes[64];
    int got = 0, part;
    while ((part = (int)recv(s, bytes + got, (int)sizeof bytes - got, 0)) > 0)
        got += part;
    if (got != (int)strlen(text) || memcmp(bytes, text, (size_t)got) != 0)
        fail("an answer");
}

static void be_rude(int client)
{
    struct linger at_once;
    SOCKET s = new_connection();
    at_once.l_onoff = 1;
    at_once.l_linger = 0;
    switch (client % 6) {
    case 0: /* sends nothing */
        Sleep(2);
        break;
    case 1: /* half a request */
        say(s, "GET file");
        break;
    case 2: /* missing or inaccessible */
        say(s, client % 4 == 0 ? "GET none\n" : "GET ../file-1\n");
        expect(s, "404 0\n");
        break;
    case 3: /* nonsense */
        say(s, "PUT file-1\n");
        expect(s, "404 0\n");
        break;
    case 4: /* goes away before the answer has come */
        say(s, "GET file-4\n");
        Sleep(3);
        setsockopt(s, SOL_SOCKET, SO_LINGER, (char *)&at_once, sizeof at_once);
        break;
    case 5: /* resets immediately */
        setsockopt(s, SOL_SOCKET, SO_LINGER, (char *)&at_once, sizeof at_once);
        break;
    }
    closesocket(s);
}

static DWORD WINAPI be_clients(LPVOID argument)
{
    int first = (int)(INT_PTR)argument, client;
    for (client = first; client < CLIENTS; client += CLIENT_THREADS) {
        ask(client);
        if (client < RUDE)
            be_rude(client);
    }
    return 0;
}

/* ---- the files -------------------------------------------------------------------------------- */

static void name_of(char *path, size_t room, int file)
{
    snprintf(path, room, "%s\\file-%d", folder, file);
}

static void make_files(void)
{
    char path[2 * MAX_PATH];
    int file, place;
    if (GetTempPathA(sizeof folder, folder) == 0)
        fail("the folder of temporary files");
    snprintf(folder + strlen(folder), sizeof folder - strlen(folder), "static-files-%u", (unsigned)GetCurrentProcessId());
    if (!CreateDirectoryA(folder, NULL))
        fail("making a folder");
    for (file = 0; file < FILES; file++) {
        char *bytes = (char *)malloc((size_t)SIZES[file] + 1);
        DWORD written;
        HANDLE made;
        name_of(path, sizeof path, file);
        made = CreateFileA(path, GENERIC_WRITE, 0, NULL, CREATE_NEW, FILE_ATTRIBUTE_NORMAL, NULL);
        if (!bytes || made == INVALID_HANDLE_VALUE)
            fail("making a file");
        for (place = 0; place < SIZES[file]; place++)
            bytes[place] = byte_of(file, place);
        if (!WriteFile(made, bytes, (DWORD)SIZES[file], &written, NULL) || written != (DWORD)SIZES[file])
            fail("writing a file");
        CloseHandle(made);
        free(bytes);
    }
}

static void remove_files(void)
{
    char path[2 * MAX_PATH];
    int file;
    for (file = 0; file < FILES; file++) {
        name_of(path, sizeof path, file);
        if (!DeleteFileA(path))
            fail("deleting a file");
    }
    if (!RemoveDirectoryA(folder))
        fail("removing the folder");
}

int main(void)
{
    WSADATA data;
    HANDLE servers[THREADS], clients[CLIENT_THREADS];
    int place, waits;
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0)
        return 1;
    make_files();
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
    InterlockedExchange(&is_closing, 1);
    closesocket(listener);
    for (waits = 0; contexts > 0; waits++) {
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
    remove_files();
    printf("%d files were served, %d of them by TransmitFile; %d requests were refused\n", (int)answered,
           (int)transmitted, (int)refused);
    WSACleanup();
    return answered >= CLIENTS && transmitted >= CLIENTS / FILES && refused > 0 ? 0 : 1;
}
