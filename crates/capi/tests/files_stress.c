/* Many operations on files at the same time: threads that read and write data they check, files
 * that are closed and opened while other operations are in flight, reads cancelled at any moment,
 * and ports that are closed. Each operation ends once, no byte is stored after the end, and none
 * goes to another file with the same number. */
#include <winsock2.h>
#include <windows.h>

#include <sys/stat.h>

#include "check.h"
#include "files.h"
#include "overlapped.h"

enum { THREADS = 4, LENGTH = 4096, SLOTS = 16 };

static char folder[64];
static volatile LONG ends;

typedef struct SLOT {
    OVERLAPPED overlapped;
    HANDLE file;
    int number;
    char bytes[LENGTH];
} SLOT;

static HANDLE opens(const char *which, int number, DWORD disposition, DWORD flags)
{
    char path[128];
    HANDLE file;
    snprintf(path, sizeof path, "%s/%s-%d", folder, which, number);
    file = CreateFileA(path, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, disposition,
                       FILE_FLAG_OVERLAPPED | flags, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    return file;
}

static void prepare(SLOT *slot, ULONGLONG place, HANDLE event)
{
    slot->overlapped = fresh(event);
    slot->overlapped.Offset = (DWORD)place;
    slot->overlapped.OffsetHigh = 0;
}

/* Whether the call has started an operation that is in progress; it must not have failed otherwise. */
static int goes_on(BOOL done)
{
    CHECK(done || GetLastError() == ERROR_IO_PENDING);
    return !done;
}

/* ---- one file after the other, each closed while its writes are in flight ------------------------------- */

static DWORD WINAPI closes_early(LPVOID argument)
{
    int thread = (int)(INT_PTR)argument, round, place;
    HANDLE port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    SLOT *slots = (SLOT *)calloc(SLOTS, sizeof *slots);
    char check[LENGTH];
    CHECK(port && slots);
    for (round = 0; round < (is_slow() ? 5 : 60); round++) {
        HANDLE file = opens("early", thread, CREATE_ALWAYS, 0), other;
        CHECK(CreateIoCompletionPort(file, port, 1, 0) == port);
        for (place = 0; place < SLOTS; place++) {
            prepare(&slots[place], (ULONGLONG)place * LENGTH, NULL);
            memset(slots[place].bytes, 'a' + (round + place) % 26, LENGTH);
            goes_on(WriteFile(file, slots[place].bytes, LENGTH, NULL, &slots[place].overlapped));
        }
        CHECK(CloseHandle(file));
        /* It has the number, perhaps, and nothing is ever written to it. */
        other = opens("other", thread, CREATE_ALWAYS, 0);
        for (place = 0; place < SLOTS; place++) {
            DWORD count = 0;
            ULONG_PTR key = 0;
            LPOVERLAPPED which = NULL;
            CHECK(GetQueuedCompletionStatus(port, &count, &key, &which, SOON));
            CHECK(count == LENGTH && key == 1 && which->Internal == 0);
            /* After the end, the memory belongs to this thread. */
            memset(((SLOT *)which)->bytes, '!', LENGTH);
        }
        CHECK_IS(GetFileSize(other, NULL), 0);
        CHECK(CloseHandle(other));
        file = opens("early", thread, OPEN_EXISTING, 0);
        for (place = 0; place < SLOTS; place++) {
            DWORD count = 0;
            SLOT *slot = &slots[place];
            prepare(slot, (ULONGLONG)place * LENGTH, NULL);
            goes_on(ReadFile(file, slot->bytes, LENGTH, NULL, &slot->overlapped));
            CHECK(GetOverlappedResult(file, &slot->overlapped, &count, TRUE));
            memset(check, 'a' + (round + place) % 26, LENGTH);
            CHECK(count == LENGTH && memcmp(slot->bytes, check, LENGTH) == 0);
        }
        CHECK(CloseHandle(file));
    }
    CHECK(CloseHandle(port));
    free(slots);
    return 0;
}

/* ---- one file, read by all through one port; the cache is emptied meanwhile ------------------------------- */

static HANDLE shared, shared_port;
static volatile LONG left;

static void begin_read(SLOT *slot)
{
    slot->number = slot->number * 73 % 251;
    prepare(slot, (ULONGLONG)slot->number * LENGTH, NULL);
    slot->file = shared;
    goes_on(ReadFile(shared, slot->bytes, LENGTH, NULL, &slot->overlapped));
}

static DWORD WINAPI reads(LPVOID argument)
{
    (void)argument;
    for (;;) {
        DWORD count = 0, at;
        ULONG_PTR key = 0;
        LPOVERLAPPED which = NULL;
        SLOT *slot;
        CHECK(GetQueuedCompletionStatus(shared_port, &count, &key, &which, SOON));
        if (!which) {
            CHECK(PostQueuedCompletionStatus(shared_port, 0, 0, NULL));
            return 0;
        }
        slot = (SLOT *)which;
        CHECK_IS(count, LENGTH);
        for (at = 0; at < LENGTH; at++)
            CHECK(slot->bytes[at] == (char)slot->number);
        if (InterlockedDecrement(&left) >= 0) {
            begin_read(slot);
        } else {
            free(slot);
            if (InterlockedIncrement(&ends) == SLOTS)
                CHECK(PostQueuedCompletionStatus(shared_port, 0, 0, NULL));
        }
    }
}

static void all_read_one_file(void)
{
    HANDLE threads[THREADS];
    SLOT *slot = (SLOT *)calloc(1, sizeof *slot);
    char path[128];
    int descriptor, number;
    shared = opens("shared", 0, CREATE_ALWAYS, 0);
    for (number = 0; number < 251; number++) {
        DWORD count = 0;
        prepare(slot, (ULONGLONG)number * LENGTH, NULL);
        memset(slot->bytes, number, LENGTH);
        goes_on(WriteFile(shared, slot->bytes, LENGTH, NULL, &slot->overlapped));
        CHECK(GetOverlappedResult(shared, &slot->overlapped, &count, TRUE) && count == LENGTH);
    }
    free(slot);
    shared_port = CreateIoCompletionPort(shared, NULL, 3, 0);
    CHECK(shared_port != NULL);
    left = is_slow() ? 200 : tries(5000, 20000);
    ends = 0;
    for (number = 0; number < SLOTS; number++) {
        slot = (SLOT *)calloc(1, sizeof *slot);
        slot->number = number + 1;
        begin_read(slot);
    }
    for (number = 0; number < THREADS; number++)
        threads[number] = CreateThread(NULL, 0, reads, NULL, 0, NULL);
    snprintf(path, sizeof path, "%s/shared-0", folder);
    descriptor = open(path, O_RDONLY);
    while (WaitForMultipleObjects(THREADS, threads, TRUE, 1) == WAIT_TIMEOUT) {
        fsync(descriptor);
        posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    }
    close(descriptor);
    for (number = 0; number < THREADS; number++)
        CHECK(CloseHandle(threads[number]));
    CHECK(CloseHandle(shared) && CloseHandle(shared_port));
}

/* ---- reads that wait, cancelled and answered at the same time ---------------------------------------------- */

static HANDLE waiting;
static volatile LONG is_over;

static DWORD WINAPI cancels(LPVOID argument)
{
    (void)argument;
    while (!InterlockedCompareExchange(&is_over, 0, 0)) {
        CancelIoEx(waiting, NULL);
        SwitchToThread();
    }
    return 0;
}

static void each_read_is_cancelled_or_answered(void)
{
    HANDLE port, canceller, event = CreateEventA(NULL, TRUE, FALSE, NULL);
    int round, answered = 0;
    char path[128];
    if (!ends_early(__func__)) {
        CHECK(CloseHandle(event));
        return;
    }
    snprintf(path, sizeof path, "%s/pipe-0", folder);
    CHECK_IS(mkfifo(path, 0600), 0);
    waiting = opens("pipe", 0, OPEN_EXISTING, 0);
    port = CreateIoCompletionPort(waiting, NULL, 1, 0);
    canceller = CreateThread(NULL, 0, cancels, NULL, 0, NULL);
    for (round = 0; round < (is_slow() ? 50 : 3000); round++) {
        OVERLAPPED *read = (OVERLAPPED *)calloc(1, sizeof *read), *which = NULL;
        char *byte = (char *)calloc(1, 1);
        DWORD count = UNTOUCHED;
        ULONG_PTR key = 0;
        BOOL is_well;
        int writer = round % 3 == 0 ? open(path, O_WRONLY | O_NONBLOCK) : -1;
        goes_on(ReadFile(waiting, byte, 1, NULL, read));
        if (writer >= 0) {
            CHECK_IS(write(writer, "x", 1), 1);
            close(writer);
        }
        is_well = GetQueuedCompletionStatus(port, &count, &key, &which, SOON);
        CHECK(which == read);
        CHECK(is_well ? count == 1 && *byte == 'x' : GetLastError() == ERROR_OPERATION_ABORTED);
        answered += is_well;
        /* Nothing is written there from now on. */
        free(byte);
        free(read);
    }
    InterlockedExchange(&is_over, 1);
    CHECK_IS(WaitForSingleObject(canceller, SOON), WAIT_OBJECT_0);
    printf("%d of %d reads were answered\n", answered, round);
    CHECK(CloseHandle(canceller) && CloseHandle(waiting) && CloseHandle(port) && CloseHandle(event));
    CHECK(DeleteFileA(path));
}

/* ---- a port that is closed, and a handle that another thread closes during a call ----------------------------- */

static DWORD WINAPI closes(LPVOID argument)
{
    HANDLE *handles = (HANDLE *)argument;
    CHECK(CloseHandle(handles[0]));
    CHECK(CloseHandle(handles[1]));
    return 0;
}

static void what_is_closed_meanwhile_harms_nothing(void)
{
    int round, place;
    for (round = 0; round < (is_slow() ? 10 : 300); round++) {
        SLOT *slots = (SLOT *)calloc(SLOTS, sizeof *slots);
        HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL), thread, handles[2];
        int begun = 0;
        handles[round % 2] = opens("closed", 0, OPEN_ALWAYS, 0);
        handles[!(round % 2)] = CreateIoCompletionPort(handles[round % 2], NULL, 1, 0);
        thread = CreateThread(NULL, 0, closes, handles, 0, NULL);
        for (place = 0; place < SLOTS; place++) {
            prepare(&slots[place], (ULONGLONG)place * LENGTH, NULL);
            SetLastError(0);
            if (WriteFile(handles[round % 2], slots[place].bytes, LENGTH, NULL, &slots[place].overlapped) ||
                GetLastError() == ERROR_IO_PENDING) {
                begun = place + 1;
            } else {
                CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
                break;
            }
        }
        for (place = 0; place < begun; place++) {
            DWORD count = 0;
            CHECK(GetOverlappedResult(handles[round % 2], &slots[place].overlapped, &count, TRUE));
            CHECK_IS(count, LENGTH);
        }
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK(CloseHandle(thread) && CloseHandle(event));
        free(slots);
    }
}

/* ---- a read of a pipe that is begun while another thread closes the handle ------------------------------------ */

static HANDLE closing;
static volatile LONG is_closing;

static DWORD WINAPI closes_when_told(LPVOID argument)
{
    int round, spin;
    (void)argument;
    for (round = 0; !InterlockedCompareExchange(&is_over, 0, 0); round++) {
        while (!InterlockedCompareExchange(&is_closing, 0, 0)) {
            if (InterlockedCompareExchange(&is_over, 0, 0))
                return 0;
            SwitchToThread();
        }
        for (spin = round % 64 * 16; spin > 0; spin--)
            InterlockedCompareExchange(&is_over, 0, 0);
        CHECK(CloseHandle(closing));
        InterlockedExchange(&is_closing, 0);
    }
    return 0;
}

/* Nothing but the close could cancel it: there is no handle any more. */
static void a_read_ends_though_its_handle_is_closed(void)
{
    HANDLE thread, event;
    int round, begun = 0;
    char path[128];
    if (!ends_early(__func__))
        return;
    event = CreateEventA(NULL, TRUE, FALSE, NULL);
    snprintf(path, sizeof path, "%s/pipe-0", folder);
    CHECK_IS(mkfifo(path, 0600), 0);
    InterlockedExchange(&is_over, 0);
    thread = CreateThread(NULL, 0, closes_when_told, NULL, 0, NULL);
    for (round = 0; round < (is_slow() ? 20 : tries(500, 20000)); round++) {
        OVERLAPPED *read = (OVERLAPPED *)calloc(1, sizeof *read);
        char *byte = (char *)calloc(1, 1);
        closing = opens("pipe", 0, OPEN_EXISTING, 0);
        read->hEvent = event;
        InterlockedExchange(&is_closing, 1);
        SetLastError(0);
        CHECK(!ReadFile(closing, byte, 1, NULL, read));
        if (GetLastError() == ERROR_IO_PENDING) {
            begun++;
            CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
            CHECK_IS(read->Internal, CANCELLED);
        } else {
            CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
        }
        while (InterlockedCompareExchange(&is_closing, 0, 0))
            SwitchToThread();
        free(byte);
        free(read);
    }
    InterlockedExchange(&is_over, 1);
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    printf("%d of %d reads were begun before the close\n", begun, round);
    CHECK(CloseHandle(thread) && CloseHandle(event) && DeleteFileA(path));
}

int main(void)
{
    HANDLE threads[THREADS];
    char path[128];
    int number;
    start();
    snprintf(folder, sizeof folder, "/tmp/cp-files-stress-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    for (number = 0; number < THREADS; number++)
        threads[number] = CreateThread(NULL, 0, closes_early, (LPVOID)(INT_PTR)number, 0, NULL);
    CHECK_IS(WaitForMultipleObjects(THREADS, threads, TRUE, INFINITE), WAIT_OBJECT_0);
    for (number = 0; number < THREADS; number++) {
        CHECK(CloseHandle(threads[number]));
        snprintf(path, sizeof path, "%s/early-%d", folder, number);
        CHECK(DeleteFileA(path));
        snprintf(path, sizeof path, "%s/other-%d", folder, number);
        CHECK(DeleteFileA(path));
    }
    all_read_one_file();
    each_read_is_cancelled_or_answered();
    what_is_closed_meanwhile_harms_nothing();
    a_read_ends_though_its_handle_is_closed();
    snprintf(path, sizeof path, "%s/shared-0", folder);
    CHECK(DeleteFileA(path));
    snprintf(path, sizeof path, "%s/closed-0", folder);
    CHECK(DeleteFileA(path));
    CHECK(RemoveDirectoryA(folder));
    return finish();
}
