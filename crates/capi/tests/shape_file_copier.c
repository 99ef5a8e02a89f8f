/* The shape of a program that copies files: sixteen reads in flight. Each becomes a write of its
 * data, and then the next read. One thread takes the packets of both files. A read that is short or
 * fails shows the end of the source. Unbuffered transfers use whole blocks, and the copy is
 * truncated at the end. */
#include <winsock2.h>
#include <windows.h>

#include "check.h"

enum { IN_FLIGHT = 16, CHUNK = 64 << 10, BLOCK = 4096, LENGTH = 5 * (1 << 20) + 12345 };
enum { OF_SOURCE = 1, OF_TARGET = 2 };

typedef struct SLOT {
    OVERLAPPED overlapped; /* first: a packet brings its address */
    char *bytes;
    DWORD count;
    ULONGLONG place;
} SLOT;

typedef struct COPIER {
    HANDLE port, source, target;
    int is_unbuffered;
    ULONGLONG next, length; /* where the next read begins; how much has come */
    int in_flight, at_end;
    SLOT slots[IN_FLIGHT];
} COPIER;

static char folder[64];

static void path_of(char *path, size_t room, const char *which)
{
    snprintf(path, room, "%s/%s", folder, which);
}

static HANDLE opens(const char *which, DWORD access, DWORD disposition, DWORD flags)
{
    char path[128];
    HANDLE file;
    path_of(path, sizeof path, which);
    file = CreateFileA(path, access, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, disposition, flags, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    return file;
}

static void point(SLOT *slot)
{
    memset(&slot->overlapped, 0, sizeof slot->overlapped);
    slot->overlapped.Offset = (DWORD)slot->place;
    slot->overlapped.OffsetHigh = (DWORD)(slot->place >> 32);
}

/* Immediate results also make packets. Returns false at the end of the source. */
static int begins_read(COPIER *it, SLOT *slot)
{
    if (it->at_end)
        return 0;
    slot->place = it->next;
    point(slot);
    if (!ReadFile(it->source, slot->bytes, CHUNK, NULL, &slot->overlapped)) {
        if (GetLastError() == ERROR_HANDLE_EOF) {
            it->at_end = 1;
            return 0;
        }
        CHECK_IS(GetLastError(), ERROR_IO_PENDING);
    }
    it->next += CHUNK;
    it->in_flight++;
    return 1;
}

static void begins_write(COPIER *it, SLOT *slot)
{
    DWORD count = slot->count;
    if (it->is_unbuffered)
        count = (count + BLOCK - 1) / BLOCK * BLOCK; /* the rest is truncated at the end */
    point(slot);
    CHECK(WriteFile(it->target, slot->bytes, count, NULL, &slot->overlapped) || GetLastError() == ERROR_IO_PENDING);
    it->in_flight++;
}

static void takes_one(COPIER *it)
{
    DWORD count = 0;
    ULONG_PTR key = 0;
    LPOVERLAPPED which = NULL;
    BOOL is_well = GetQueuedCompletionStatus(it->port, &count, &key, &which, SOON);
    SLOT *slot = (SLOT *)(void *)which;
    CHECK(slot >= it->slots && slot < it->slots + IN_FLIGHT);
    it->in_flight--;
    if (key == OF_SOURCE) {
        if (!is_well) {
            CHECK_IS(GetLastError(), ERROR_HANDLE_EOF);
            it->at_end = 1;
            return;
        }
        it->at_end |= count < CHUNK;
        if (slot->place + count > it->length)
            it->length = slot->place + count;
        slot->count = count;
        begins_write(it, slot);
    } else {
        CHECK_IS(key, OF_TARGET);
        CHECK(is_well);
        CHECK(count >= slot->count);
        begins_read(it, slot);
    }
}

static void copies(const char *from, const char *to, DWORD flags)
{
    COPIER *it = (COPIER *)calloc(1, sizeof *it);
    char *memory = (char *)calloc(IN_FLIGHT + 1, CHUNK), *aligned;
    LARGE_INTEGER length;
    HANDLE plain;
    int place;
    CHECK(it && memory);
    aligned = memory + (CHUNK - (uintptr_t)memory % CHUNK) % CHUNK;
    it->is_unbuffered = (flags & FILE_FLAG_NO_BUFFERING) != 0;
    it->source = opens(from, GENERIC_READ, OPEN_EXISTING, FILE_FLAG_OVERLAPPED | FILE_FLAG_SEQUENTIAL_SCAN | flags);
    it->target = opens(to, GENERIC_WRITE, CREATE_ALWAYS, FILE_FLAG_OVERLAPPED | flags);
    it->port = CreateIoCompletionPort(it->source, NULL, OF_SOURCE, 1);
    CHECK(it->port != NULL && CreateIoCompletionPort(it->target, it->port, OF_TARGET, 0) == it->port);
    for (place = 0; place < IN_FLIGHT; place++) {
        it->slots[place].bytes = aligned + place * (size_t)CHUNK;
        begins_read(it, &it->slots[place]);
    }
    while (it->in_flight > 0)
        takes_one(it);
    CHECK(FlushFileBuffers(it->target));
    CHECK(CloseHandle(it->source) && CloseHandle(it->target) && CloseHandle(it->port));
    plain = opens(to, GENERIC_WRITE, OPEN_EXISTING, 0);
    length.QuadPart = (LONGLONG)it->length;
    CHECK(SetFilePointerEx(plain, length, NULL, FILE_BEGIN) && SetEndOfFile(plain));
    CHECK(CloseHandle(plain));
    free(memory);
    free(it);
}

/* What the file has, to the last byte. */
static void has(const char *which, const char *wanted, DWORD length)
{
    HANDLE file = opens(which, GENERIC_READ, OPEN_EXISTING, 0);
    char *bytes = (char *)malloc(length + 1);
    LARGE_INTEGER size;
    DWORD count = 0;
    CHECK(bytes && GetFileSizeEx(file, &size));
    CHECK_IS(size.QuadPart, length);
    CHECK(ReadFile(file, bytes, length + 1, &count, NULL));
    CHECK_IS(count, length);
    CHECK(memcmp(bytes, wanted, length) == 0);
    CHECK(CloseHandle(file));
    free(bytes);
}

int main(void)
{
    static const DWORD lengths[] = {0, 1, CHUNK, IN_FLIGHT * CHUNK, LENGTH};
    static const DWORD flags[] = {0, FILE_FLAG_NO_BUFFERING};
    char *contents = (char *)malloc(LENGTH), path[128];
    size_t place, which;
    start();
    snprintf(folder, sizeof folder, "/tmp/cp-copier-XXXXXX");
    CHECK(contents && mkdtemp(folder) != NULL);
    for (place = 0; place < LENGTH; place++)
        contents[place] = (char)(place * 31 + place / 4093);
    for (which = 0; which < sizeof lengths / sizeof *lengths; which++) {
        HANDLE plain = opens("source", GENERIC_WRITE, CREATE_ALWAYS, 0);
        DWORD done = 0;
        CHECK(WriteFile(plain, contents, lengths[which], &done, NULL) && done == lengths[which]);
        CHECK(CloseHandle(plain));
        for (place = 0; place < 2; place++) {
            copies("source", "target", flags[place]);
            has("target", contents, lengths[which]);
        }
    }
    path_of(path, sizeof path, "source");
    CHECK(DeleteFileA(path));
    path_of(path, sizeof path, "target");
    CHECK(DeleteFileA(path));
    CHECK(RemoveDirectoryA(folder));
    free(contents);
    return finish();
}
