/* winternl.h: types of the reference's kernel interface. Its functions are not here. */
#ifndef CP_WINTERNL_H
#define CP_WINTERNL_H

#include <windows.h>

typedef struct _UNICODE_STRING {
    USHORT Length;
    USHORT MaximumLength;
    PWSTR Buffer;
} UNICODE_STRING, *PUNICODE_STRING;

typedef struct _OBJECT_ATTRIBUTES {
    ULONG Length;
    HANDLE RootDirectory;
    PUNICODE_STRING ObjectName;
    ULONG Attributes;
    PVOID SecurityDescriptor;
    PVOID SecurityQualityOfService;
} OBJECT_ATTRIBUTES, *POBJECT_ATTRIBUTES;

typedef struct _IO_STATUS_BLOCK {
    __extension__ union {
        NTSTATUS Status;
        PVOID Pointer;
    };
    ULONG_PTR Information;
} IO_STATUS_BLOCK, *PIO_STATUS_BLOCK;

typedef VOID(NTAPI *PIO_APC_ROUTINE)(PVOID ApcContext, PIO_STATUS_BLOCK IoStatusBlock, ULONG Reserved);

#define NT_SUCCESS(status) ((NTSTATUS)(status) >= 0)
#define STATUS_SUCCESS ((NTSTATUS)0)

#ifdef __cplusplus
extern "C" {
#endif
CP_ABSENT("the kernel's own calls") extern NTSTATUS NTAPI NtClose(HANDLE Handle);
CP_ABSENT("the kernel's own calls")
extern NTSTATUS NTAPI NtCreateFile(PHANDLE FileHandle, ACCESS_MASK DesiredAccess,
                                   POBJECT_ATTRIBUTES ObjectAttributes, PIO_STATUS_BLOCK IoStatusBlock,
                                   PLARGE_INTEGER AllocationSize, ULONG FileAttributes, ULONG ShareAccess,
                                   ULONG CreateDisposition, ULONG CreateOptions, PVOID EaBuffer,
                                   ULONG EaLength);
CP_ABSENT("the kernel's own calls")
extern NTSTATUS NTAPI NtDeviceIoControlFile(HANDLE FileHandle, HANDLE Event, PIO_APC_ROUTINE ApcRoutine,
                                            PVOID ApcContext, PIO_STATUS_BLOCK IoStatusBlock,
                                            ULONG IoControlCode, PVOID InputBuffer, ULONG InputBufferLength,
                                            PVOID OutputBuffer, ULONG OutputBufferLength);
CP_ABSENT("the kernel's own codes") extern ULONG NTAPI RtlNtStatusToDosError(NTSTATUS Status);
#ifdef __cplusplus
}
#endif

#endif
