/* The shape of an event queue with the same interface on every system, over its back end for
 * completion ports. Immediate results make no packets (FILE_SKIP_COMPLETION_PORT_ON_SUCCESS): the
 * queue lists them, and returns them before it waits. An operation is one struct for both, in which
 * the OVERLAPPED and the link of that list share their memory.
 *
 * The program on top passes messages around a ring of sockets, and also reads a file. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include "check.h"

/* ---- the queue, as programs see it ---------------------------------------------------------------- */

typedef enum { EVQ_READ, EVQ_WRITE, EVQ_CUSTOM } evq_kind;

typedef struct evq_op {
    union { /* in flight; ended, and not handed out yet */
        OVERLAPPED overlapped;
        struct {
            struct evq_op *next;
        };
    };
    struct {
        evq_kind kind;
        int error; /* 0, or an error */
        size_t bytes;
        void *data;
    };
} evq_op;

typedef struct evq {
    HANDLE port;
    evq_op *first, **last; /* finished immediately */
    unsigned long at_once, by_packet;
} evq;

/* ---- its back end --------------------------------------------------------------------------------- */

static evq *evq_new(void)
{
    evq *queue = (evq *)calloc(1, sizeof *queue);
    CHECK(queue != NULL);
    queue->last = &queue->first;
    queue->port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 1);
    CHECK(queue->port != NULL);
    return queue;
}

static void evq_free(evq *queue)
{
    CHECK(queue->first == NULL && CloseHandle(queue->port));
    free(queue);
}

static void evq_add(evq *queue, HANDLE handle)
{
    CHECK(CreateIoCompletionPort(handle, queue->port, (ULONG_PTR)handle, 0) == queue->port);
    CHECK(SetFileCompletionNotificationModes(handle, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS |
                                                         FILE_SKIP_SET_EVENT_ON_HANDLE));
}

static void evq_prepare(evq_op *op, evq_kind kind, ULONGLONG place)
{
    memset(&op->overlapped, 0, sizeof op->overlapped);
    op->overlapped.Offset = (DWORD)place;
    op->overlapped.OffsetHigh = (DWORD)(place >> 32);
    op->kind = kind;
    op->error = 0;
    op->bytes = 0;
}

/* The call has ended the operation, or it is in progress. */
static void evq_begun(evq *queue, evq_op *op, BOOL is_done, DWORD bytes)
{
    DWORD error = is_done ? 0 : GetLastError();
    if (error == ERROR_IO_PENDING)
        return;
    op->error = (int)error;
    op->bytes = bytes;
    op->next = NULL;
    *queue->last = op;
    queue->last = &op->next;
}

static void evq_read(evq *queue, HANDLE handle, evq_op *op, void *bytes, size_t room, ULONGLONG place)
{
    DWORD count = 0;
    BOOL is_done;
    evq_prepare(op, EVQ_READ, place);
    is_done = ReadFile(handle, bytes, (DWORD)room, &count, &op->overlapped);
    evq_begun(queue, op, is_done, count);
}

static void evq_write(evq *queue, SOCKET s, evq_op *op, const void *bytes, size_t size)
{
    WSABUF buffer;
    DWORD count = 0;
    int outcome;
    buffer.len = (ULONG)size;
    buffer.buf = (CHAR *)(uintptr_t)bytes;
    evq_prepare(op, EVQ_WRITE, 0);
    outcome = WSASend(s, &buffer, 1, &count, 0, &op->overlapped, NULL);
    evq_begun(queue, op, outcome == 0, count);
}

/* By any thread. */
static void evq_post(evq *queue, evq_op *op)
{
    evq_prepare(op, EVQ_CUSTOM, 0);
    CHECK(PostQueuedCompletionStatus(queue->port, 0, 0, &op->overlapped));
}

/* Returns up to that many finished operations; none after a timeout. */
static int evq_wait(evq *queue, evq_op **ended, int room, DWORD milliseconds)
{
    OVERLAPPED_ENTRY entries[8];
    ULONG count = 0, place;
    int found = 0;
    while (queue->first != NULL && found < room) {
        evq_op *op = queue->first;
        queue->first = op->next;
        if (queue->first == NULL)
            queue->last = &queue->first;
        ended[found++] = op;
        queue->at_once++;
    }
    if (found == room)
        return found;
    if (room - found < 8)
        count = (ULONG)(room - found);
    if (!GetQueuedCompletionStatusEx(queue->port, entries, count ? count : 8, &count, found ? 0 : milliseconds, FALSE)) {
        CHECK_IS(GetLastError(), WAIT_TIMEOUT);
        return found;
    }
    for (place = 0; place < count; place++) {
        evq_op *op = (evq_op *)(void *)entries[place].lpOverlapped;
        DWORD bytes = 0;
        if (op->kind != EVQ_CUSTOM) {
            /* The handle is the key. */
            BOOL is_well = GetOverlappedResult((HANDLE)entries[place].lpCompletionKey, &op->overlapped, &bytes, FALSE);
            op->error = is_well ? 0 : (int)GetLastError();
            CHECK_IS(bytes, entries[place].dwNumberOfBytesTransferred);
        }
        op->bytes = bytes;
        ended[found++] = op;
        queue->by_packet++;
    }
    return found;
}

/* ---- the program on top --------------------------------------------------------------------------- */

enum { STATIONS = 8, MESSAGE = 1000, ROUNDS = 200, FILE_SIZE = 200000 };

/* Data written to `out` arrives at `in` of the next station. */
typedef struct station {
    SOCKET in, out;
    evq_op reading, writing;
    int is_writing;
    size_t got;
    char bytes[MESSAGE];
} station;

static evq *queue;
static station stations[STATIONS];
static unsigned long passed, wanted;

static void listens(station *it)
{
    evq_read(queue, (HANDLE)it->in, &it->reading, it->bytes + it->got, MESSAGE - it->got, 0);
}

static void station_has(station *it, evq_op *op)
{
    size_t place;
    CHECK_IS(op->error, 0);
    if (op == &it->writing) {
        CHECK_IS(op->bytes, MESSAGE);
        it->is_writing = 0;
        it->got = 0;
        listens(it);
        return;
    }
    CHECK(op == &it->reading && op->bytes > 0);
    it->got += op->bytes;
    if (it->got < MESSAGE) {
        listens(it);
        return;
    }
    for (place = 1; place < MESSAGE; place++)
        CHECK(it->bytes[place] == it->bytes[0]);
    passed++;
    CHECK(!it->is_writing);
    it->is_writing = 1;
    evq_write(queue, it->out, &it->writing, it->bytes, MESSAGE);
}

static DWORD WINAPI posts(LPVOID argument)
{
    evq_post(queue, (evq_op *)argument);
    return 0;
}

int main(void)
{
    char path[64], first[MESSAGE], *contents = (char *)malloc(FILE_SIZE), *came = (char *)malloc(FILE_SIZE);
    evq_op *ended[5], custom, of_file;
    size_t at = 0, left;
    HANDLE file, thread;
    DWORD done = 0;
    int place, count, file_has_ended = 0, has_custom = 0;
    start();
    CHECK(contents && came);
    memset(contents, 'f', FILE_SIZE);
    snprintf(path, sizeof path, "/tmp/cp-neutral-%d", (int)getpid());
    file = CreateFileA(path, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    CHECK(WriteFile(file, contents, FILE_SIZE, &done, NULL) && done == FILE_SIZE && CloseHandle(file));
    file = CreateFileA(path, GENERIC_READ, 0, NULL, OPEN_EXISTING, FILE_FLAG_OVERLAPPED | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    queue = evq_new();
    evq_add(queue, file);
    for (place = 0; place < STATIONS; place++)
        tcp_pair(&stations[place].out, &stations[(place + 1) % STATIONS].in);
    for (place = 0; place < STATIONS; place++) {
        evq_add(queue, (HANDLE)stations[place].in);
        evq_add(queue, (HANDLE)stations[place].out);
        stations[place].reading.data = stations[place].writing.data = &stations[place];
        listens(&stations[place]);
    }
    custom.data = of_file.data = NULL;
    wanted = (unsigned long)STATIONS * (is_slow() ? ROUNDS / 10 : ROUNDS);
    /* Three messages go round. */
    for (place = 0; place < 3; place++) {
        memset(first, 'a' + place, MESSAGE);
        send_all(stations[place * 2].out, first, MESSAGE);
    }
    evq_read(queue, file, &of_file, came, 7000, 0);
    thread = CreateThread(NULL, 0, posts, &custom, 0, NULL);
    while (passed < wanted || !file_has_ended || !has_custom) {
        count = evq_wait(queue, ended, 5, SOON);
        CHECK(count > 0);
        for (place = 0; place < count; place++) {
            evq_op *op = ended[place];
            if (op == &custom) {
                CHECK(!has_custom && op->kind == EVQ_CUSTOM);
                has_custom = 1;
            } else if (op == &of_file) {
                if (op->error != 0) {
                    CHECK_IS(op->error, ERROR_HANDLE_EOF);
                    CHECK(at == FILE_SIZE && memcmp(came, contents, FILE_SIZE) == 0);
                    file_has_ended = 1;
                } else {
                    at += op->bytes;
                    left = FILE_SIZE - at < 7000 ? FILE_SIZE - at : 7000;
                    if (left > 0)
                        evq_read(queue, file, &of_file, came + at, left, at);
                    else /* one more, that finds the end */
                        evq_read(queue, file, &of_file, first, sizeof first, at);
                }
            } else {
                station_has((station *)op->data, op);
            }
        }
    }
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    CHECK(CloseHandle(thread));
    CHECK(queue->at_once > 0 && queue->by_packet > 0);
    /* Operations in flight end when their sockets are closed: each is returned once. */
    for (place = 0; place < STATIONS; place++) {
        closesocket(stations[place].in);
        closesocket(stations[place].out);
    }
    for (place = 0, count = 1; place < STATIONS && count > 0;) {
        int one;
        count = evq_wait(queue, ended, 5, SOON);
        for (one = 0; one < count; one++) {
            station *it = (station *)ended[one]->data;
            CHECK(it >= stations && it < stations + STATIONS);
            place++;
        }
    }
    CHECK_IS(place, STATIONS);
    printf("%lu ended at once, %lu by packets\n", queue->at_once, queue->by_packet);
    CHECK(CloseHandle(file));
    evq_free(queue);
    free(contents);
    free(came);
    return finish();
}
