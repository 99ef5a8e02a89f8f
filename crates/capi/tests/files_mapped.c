/* File mappings and their views, of files and of memory: closing in any order, and invalid arguments. */
#include <winsock2.h>
#include <windows.h>

#include <pthread.h>
#include <sys/wait.h>

#include "check.h"

static char folder[64];

static HANDLE opens(const char *name, DWORD access, DWORD disposition)
{
    char text[160];
    HANDLE file;
    snprintf(text, sizeof text, "%s/%s", folder, name);
    file = CreateFileA(text, access, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, disposition, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    return file;
}

static void deletes(const char *name)
{
    char text[160];
    snprintf(text, sizeof text, "%s/%s", folder, name);
    CHECK(DeleteFileA(text));
}

static DWORD size_of(HANDLE file)
{
    return GetFileSize(file, NULL);
}

#define CHECK_NULL(call, code) (SetLastError(0), CHECK((call) == NULL), CHECK_IS(GetLastError(), (code)))
#define BOTH (GENERIC_READ | GENERIC_WRITE)
#define MAPPED(file, protect, size) CreateFileMappingA((file), NULL, (protect), 0, (size), NULL)
#define ALL_OF(mapping, access) ((char *)MapViewOfFile((mapping), (access), 0, 0, 0))

static void memory_is_shared_by_views(void)
{
    HANDLE mapping = MAPPED(INVALID_HANDLE_VALUE, PAGE_READWRITE, 200000);
    char *one, *other, *part, *copy;
    SYSTEM_INFO machine;
    CHECK(mapping != NULL);
    CHECK_IS(GetLastError(), ERROR_SUCCESS);
    one = ALL_OF(mapping, FILE_MAP_ALL_ACCESS);
    other = ALL_OF(mapping, FILE_MAP_READ);
    GetSystemInfo(&machine);
    part = (char *)MapViewOfFile(mapping, FILE_MAP_WRITE | FILE_MAP_READ, 0, 2 * machine.dwAllocationGranularity, 100);
    copy = ALL_OF(mapping, FILE_MAP_COPY);
    CHECK(one && other && part && copy && one != other);
    CHECK(((uintptr_t)one | (uintptr_t)other | (uintptr_t)part | (uintptr_t)copy) % 0x10000 == 0);
    CHECK(one[0] == 0 && one[199999] == 0);
    strcpy(one, "shared");
    CHECK(strcmp(other, "shared") == 0 && strcmp(copy, "shared") == 0);
    part[5] = 'p';
    CHECK_IS(other[0x20005], 'p');
    strcpy(copy, "own");
    CHECK(strcmp(one, "shared") == 0 && strcmp(copy, "own") == 0);
    CHECK(FlushViewOfFile(one, 0) && FlushViewOfFile(one + 5000, 100) && FlushViewOfFile(part, 100));
    /* Views outlive the handle. */
    CHECK(CloseHandle(mapping));
    CHECK_FALSE(CloseHandle(mapping), ERROR_INVALID_HANDLE);
    CHECK_NULL(ALL_OF(mapping, FILE_MAP_READ), ERROR_INVALID_HANDLE);
    one[199999] = 'e';
    CHECK_IS(other[199999], 'e');
    CHECK(UnmapViewOfFile(one));
    CHECK_FALSE(UnmapViewOfFile(one), ERROR_INVALID_ADDRESS);
    CHECK_FALSE(FlushViewOfFile(one, 0), ERROR_INVALID_ADDRESS);
    CHECK_IS(other[199999], 'e');
    CHECK(UnmapViewOfFile(other) && UnmapViewOfFile(part) && UnmapViewOfFile(copy));
}

static void a_file_is_read_and_written_by_views(void)
{
    HANDLE file = opens("a", BOTH, CREATE_NEW), mapping;
    char bytes[8];
    DWORD done;
    char *view;
    CHECK(WriteFile(file, "0123456789", 10, &done, NULL));
    mapping = MAPPED(file, PAGE_READWRITE, 0);
    CHECK(mapping != NULL && CloseHandle(file));
    view = ALL_OF(mapping, FILE_MAP_WRITE);
    CHECK(view && memcmp(view, "0123456789", 10) == 0 && view[10] == 0);
    CHECK(CloseHandle(mapping));
    memcpy(view, "view", 4);
    CHECK(FlushViewOfFile(view, 4));
    file = opens("a", BOTH, OPEN_EXISTING);
    CHECK(ReadFile(file, bytes, 5, &done, NULL) && done == 5 && memcmp(bytes, "view4", 5) == 0);
    /* The view shows data written to the file. */
    CHECK(WriteFile(file, "file", 4, &done, NULL));
    CHECK(memcmp(view, "view4file9", 10) == 0);
    CHECK(UnmapViewOfFile(view));
    CHECK_IS(size_of(file), 10);
    /* A larger mapping extends the file. */
    mapping = MAPPED(file, PAGE_READWRITE, 100000);
    CHECK(mapping != NULL);
    CHECK_IS(size_of(file), 100000);
    view = (char *)MapViewOfFile(mapping, FILE_MAP_WRITE, 0, 0x10000, 0);
    CHECK(view != NULL);
    view[100000 - 0x10000 - 1] = 'z';
    CHECK(SetFilePointer(file, -1, NULL, FILE_END) == 99999 && ReadFile(file, bytes, 1, &done, NULL));
    CHECK(done == 1 && bytes[0] == 'z');
    CHECK(UnmapViewOfFile(view) && CloseHandle(mapping));
    /* A private copy never changes the file, however the file was opened. */
    CHECK(CloseHandle(file));
    file = opens("a", GENERIC_READ, OPEN_EXISTING);
    mapping = MAPPED(file, PAGE_WRITECOPY | SEC_COMMIT, 0);
    view = ALL_OF(mapping, FILE_MAP_COPY);
    CHECK(view != NULL);
    view[0] = 'X';
    CHECK(ReadFile(file, bytes, 1, &done, NULL) && bytes[0] == 'v');
    CHECK_NULL(ALL_OF(mapping, FILE_MAP_WRITE), ERROR_ACCESS_DENIED);
    CHECK(UnmapViewOfFile(view) && CloseHandle(mapping) && CloseHandle(file));
    deletes("a");
}

/* Unlike the handle, a view does not keep others from opening the file exclusively. */
static void a_view_is_no_share_of_the_file(void)
{
    char name[160];
    HANDLE file, mapping;
    DWORD done;
    char *view;
    snprintf(name, sizeof name, "%s/s", folder);
    file = CreateFileA(name, BOTH, 0, NULL, CREATE_NEW, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE && WriteFile(file, "abc", 3, &done, NULL));
    mapping = MAPPED(file, PAGE_READONLY, 0);
    view = ALL_OF(mapping, FILE_MAP_READ);
    CHECK(view && CloseHandle(file));
    file = CreateFileA(name, BOTH, 0, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(memcmp(view, "abc", 3) == 0);
    CHECK(UnmapViewOfFile(view) && CloseHandle(mapping) && CloseHandle(file) && DeleteFileA(name));
}

static void a_mapping_that_cannot_be_is_refused(void)
{
    HANDLE file = opens("b", BOTH, CREATE_NEW), event = CreateEventA(NULL, TRUE, FALSE, NULL), other;
    DWORD done;
    CHECK_NULL(MAPPED(file, PAGE_READWRITE, 0), ERROR_FILE_INVALID);
    CHECK(WriteFile(file, "12345", 5, &done, NULL));
    CHECK_NULL(MAPPED(file, PAGE_READONLY, 6), ERROR_NOT_ENOUGH_MEMORY);
    CHECK_NULL(MAPPED(file, 0, 0), ERROR_INVALID_PARAMETER);
    CHECK_NULL(MAPPED(file, PAGE_NOACCESS, 0), ERROR_INVALID_PARAMETER);
    CHECK_NULL(MAPPED(file, PAGE_READONLY | PAGE_READWRITE, 0), ERROR_INVALID_PARAMETER);
    CHECK_NULL(MAPPED(file, PAGE_READONLY | 0x100000, 0), ERROR_INVALID_PARAMETER);
    CHECK_NULL(MAPPED(file, PAGE_READONLY | SEC_COMMIT | SEC_RESERVE, 0), ERROR_INVALID_PARAMETER);
    CHECK_NULL(MAPPED(file, PAGE_READONLY | SEC_IMAGE, 0), ERROR_NOT_SUPPORTED);
    CHECK_NULL(MAPPED(file, PAGE_READONLY | SEC_LARGE_PAGES, 0), ERROR_NOT_SUPPORTED);
    CHECK_NULL(CreateFileMappingA(file, NULL, PAGE_READONLY, 0, 0, "name"), ERROR_NOT_SUPPORTED);
    CHECK_NULL(CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, L"name"), ERROR_NOT_SUPPORTED);
    CHECK_NULL(CreateFileMappingA(file, NULL, PAGE_READWRITE, 0xFFFFFFFF, 0, NULL), ERROR_NOT_ENOUGH_MEMORY);
    CHECK_NULL(MAPPED(INVALID_HANDLE_VALUE, PAGE_READWRITE, 0), ERROR_INVALID_PARAMETER);
    CHECK_NULL(CreateFileMappingA(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, 0xFFFFFFFF, 0, NULL),
               ERROR_NOT_ENOUGH_MEMORY);
    CHECK_NULL(MAPPED(NULL, PAGE_READONLY, 5), ERROR_INVALID_HANDLE);
    CHECK_NULL(MAPPED(event, PAGE_READONLY, 5), ERROR_INVALID_HANDLE);
    CHECK_IS(size_of(file), 5);
    CHECK(CloseHandle(file));
    CHECK_NULL(MAPPED(file, PAGE_READONLY, 0), ERROR_INVALID_HANDLE);
    file = opens("b", GENERIC_READ, OPEN_EXISTING);
    CHECK_NULL(MAPPED(file, PAGE_READWRITE, 0), ERROR_ACCESS_DENIED);
    CHECK(CloseHandle(file));
    file = opens("b", GENERIC_WRITE, OPEN_EXISTING);
    CHECK_NULL(MAPPED(file, PAGE_READWRITE, 0), ERROR_ACCESS_DENIED);
    CHECK_NULL(MAPPED(file, PAGE_READONLY, 0), ERROR_ACCESS_DENIED);
    CHECK(CloseHandle(file));
    file = CreateFileA("NUL", BOTH, 0, NULL, OPEN_EXISTING, 0, NULL);
    CHECK_NULL(MAPPED(file, PAGE_READWRITE, 5), ERROR_BAD_EXE_FORMAT);
    CHECK(CloseHandle(file));
    other = CreateFileA(folder, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    CHECK_NULL(MAPPED(other, PAGE_READONLY, 5), ERROR_BAD_EXE_FORMAT);
    CHECK(CloseHandle(other) && CloseHandle(event));
    deletes("b");
}

static void a_view_that_cannot_be_is_refused(void)
{
    HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
    HANDLE mapping = MAPPED(INVALID_HANDLE_VALUE, PAGE_READWRITE, 0x20000), read_only;
    char *view, *at, *fixed;
    CHECK_NULL(MapViewOfFile(mapping, FILE_MAP_READ, 0, 1, 0), ERROR_MAPPED_ALIGNMENT);
    CHECK_NULL(MapViewOfFile(mapping, FILE_MAP_READ, 0, 0x1000, 0), ERROR_MAPPED_ALIGNMENT);
    CHECK_NULL(MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0x20001), ERROR_ACCESS_DENIED);
    CHECK_NULL(MapViewOfFile(mapping, FILE_MAP_READ, 0, 0x10000, 0x10001), ERROR_ACCESS_DENIED);
    CHECK_NULL(MapViewOfFile(mapping, FILE_MAP_READ, 0, 0x20000, 0), ERROR_ACCESS_DENIED);
    CHECK_NULL(MapViewOfFile(mapping, FILE_MAP_READ, 1, 0, 0), ERROR_ACCESS_DENIED);
    CHECK_NULL(MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, ~(SIZE_T)0), ERROR_ACCESS_DENIED);
    CHECK_NULL(MapViewOfFile(mapping, 0, 0, 0, 0), ERROR_INVALID_PARAMETER);
    CHECK_NULL(MapViewOfFile(mapping, FILE_MAP_READ | FILE_MAP_EXECUTE, 0, 0, 0), ERROR_ACCESS_DENIED);
    CHECK_NULL(MapViewOfFile(event, FILE_MAP_READ, 0, 0, 0), ERROR_INVALID_HANDLE);
    CHECK_NULL(MapViewOfFile(NULL, FILE_MAP_READ, 0, 0, 0), ERROR_INVALID_HANDLE);
    CHECK_NULL(MapViewOfFile(INVALID_HANDLE_VALUE, FILE_MAP_READ, 0, 0, 0), ERROR_INVALID_HANDLE);
    CHECK_IS(WaitForSingleObject(mapping, 0), WAIT_FAILED);
    /* At the program's address, if it is free. */
    view = ALL_OF(mapping, FILE_MAP_WRITE);
    CHECK(view != NULL);
    CHECK_NULL(MapViewOfFileEx(mapping, FILE_MAP_READ, 0, 0, 0, view), ERROR_INVALID_ADDRESS);
    CHECK_NULL(MapViewOfFileEx(mapping, FILE_MAP_READ, 0, 0, 0, view + 1), ERROR_MAPPED_ALIGNMENT);
    at = ALL_OF(mapping, FILE_MAP_READ);
    CHECK(at != NULL && UnmapViewOfFile(at));
    fixed = (char *)MapViewOfFileEx(mapping, FILE_MAP_READ, 0, 0, 0, at);
    CHECK(fixed == at && UnmapViewOfFile(fixed));
    /* Addresses that are not a view's. */
    CHECK_FALSE(UnmapViewOfFile(NULL), ERROR_INVALID_ADDRESS);
    CHECK_FALSE(UnmapViewOfFile(view + 0x10000), ERROR_INVALID_ADDRESS);
    CHECK_FALSE(UnmapViewOfFile(&view), ERROR_INVALID_ADDRESS);
    CHECK_FALSE(FlushViewOfFile(&view, 0), ERROR_INVALID_ADDRESS);
    CHECK_FALSE(FlushViewOfFile(view + 0x20000, 0), ERROR_INVALID_ADDRESS);
    CHECK_FALSE(FlushViewOfFile(view, 0x20001), ERROR_INVALID_ADDRESS);
    view[0] = 1;
    CHECK(UnmapViewOfFile(view) && CloseHandle(mapping) && CloseHandle(event));
    read_only = MAPPED(INVALID_HANDLE_VALUE, PAGE_READONLY, 10);
    CHECK_NULL(ALL_OF(read_only, FILE_MAP_WRITE), ERROR_ACCESS_DENIED);
    CHECK_NULL(ALL_OF(read_only, FILE_MAP_ALL_ACCESS), ERROR_ACCESS_DENIED);
    view = ALL_OF(read_only, FILE_MAP_COPY);
    CHECK(view != NULL && view[9] == 0);
    view[9] = 1;
    CHECK(UnmapViewOfFile(view) && CloseHandle(read_only));
}

enum { THREADS = 4, ROUNDS = 100 };

static void *maps_and_unmaps(void *mapping)
{
    int round;
    for (round = 0; round < ROUNDS; round++) {
        char *view = (char *)MapViewOfFile((HANDLE)mapping, FILE_MAP_WRITE, 0, 0x10000 * (round % 2), 0x10000);
        CHECK(view != NULL);
        __atomic_add_fetch((int *)(void *)view, 1, __ATOMIC_SEQ_CST);
        CHECK(FlushViewOfFile(view, 8));
        CHECK(UnmapViewOfFile(view));
    }
    return NULL;
}

static void threads_map_and_unmap(void)
{
    HANDLE mapping = MAPPED(INVALID_HANDLE_VALUE, PAGE_READWRITE, 0x20000);
    pthread_t threads[THREADS];
    char *view = ALL_OF(mapping, FILE_MAP_READ);
    int at;
    CHECK(view != NULL);
    for (at = 0; at < THREADS; at++)
        CHECK_IS(pthread_create(&threads[at], NULL, maps_and_unmaps, mapping), 0);
    for (at = 0; at < THREADS; at++)
        CHECK_IS(pthread_join(threads[at], NULL), 0);
    CHECK_IS(*(int *)(void *)view, THREADS * ROUNDS / 2);
    CHECK_IS(*(int *)(void *)(view + 0x10000), THREADS * ROUNDS / 2);
    CHECK(UnmapViewOfFile(view) && CloseHandle(mapping));
}

/* A forked child shares the views, and may map and unmap them. */
static void a_child_has_its_parents_views(void)
{
    HANDLE mapping = MAPPED(INVALID_HANDLE_VALUE, PAGE_READWRITE, 100);
    char *view = ALL_OF(mapping, FILE_MAP_WRITE);
    pid_t child;
    int status;
    CHECK(view != NULL);
    child = fork_at_rest();
    if (child == 0) {
        char *own = ALL_OF(mapping, FILE_MAP_WRITE);
        if (own == NULL)
            _exit(1);
        strcpy(own, "child");
        if (!UnmapViewOfFile(own) || strcmp(view, "child") != 0 || !UnmapViewOfFile(view))
            _exit(2);
        _exit(UnmapViewOfFile(view) ? 3 : 0);
    }
    CHECK_IS(waitpid(child, &status, 0), child);
    CHECK_IS(status, 0);
    CHECK(strcmp(view, "child") == 0);
    CHECK(UnmapViewOfFile(view) && CloseHandle(mapping));
}

int main(void)
{
    start();
    snprintf(folder, sizeof folder, "/tmp/cp-mapped-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    memory_is_shared_by_views();
    a_file_is_read_and_written_by_views();
    a_view_is_no_share_of_the_file();
    a_mapping_that_cannot_be_is_refused();
    a_view_that_cannot_be_is_refused();
    threads_map_and_unmap();
    a_child_has_its_parents_views();
    CHECK(RemoveDirectoryA(folder));
    return finish();
}
