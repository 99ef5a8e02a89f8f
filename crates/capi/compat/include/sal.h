/*
 * sal.h: the reference's annotations of parameters, accepted and without effect. <windows.h>
 * includes it unless CP_NO_SAL is defined. The older ones without underscores around them (__in, __out)
 * are left out: the standard library of C++ uses some of them as names.
 */
#ifndef CP_SAL_H
#define CP_SAL_H

/* Annotations of a value, or of its target. */
#define _In_
#define _In_opt_
#define _In_z_
#define _In_opt_z_
#define _Inout_
#define _Inout_opt_
#define _Inout_z_
#define _Out_
#define _Out_opt_
#define _Outptr_
#define _Outptr_opt_
#define _Outptr_result_maybenull_
#define _Outptr_opt_result_maybenull_
#define _Outref_
#define _COM_Outptr_
#define _Reserved_
#define _Const_
#define _Null_terminated_
#define _NullNull_terminated_
#define _Notnull_
#define _Maybenull_
#define _Null_
#define _Valid_
#define _Notvalid_
#define _Pre_
#define _Post_
#define _Pre_notnull_
#define _Pre_maybenull_
#define _Pre_null_
#define _Pre_valid_
#define _Pre_invalid_
#define _Post_valid_
#define _Post_invalid_
#define _Post_notnull_
#define _Post_maybenull_
#define _Ret_z_
#define _Ret_maybenull_
#define _Ret_notnull_
#define _Ret_valid_
#define _Ret_maybenull_z_
#define _Must_inspect_result_
#define _Check_return_
#define _Use_decl_annotations_
#define _Printf_format_string_
#define _Points_to_data_
#define _Interlocked_operand_
#define _Field_z_
#define _Frees_ptr_
#define _Frees_ptr_opt_
#define _Pre_opt_valid_
#define _Prepost_z_
#define _Inout_updates_z_opt_

/* With a size, a range or a condition. */
#define _In_reads_(...)
#define _In_reads_opt_(...)
#define _In_reads_bytes_(...)
#define _In_reads_bytes_opt_(...)
#define _In_reads_z_(...)
#define _In_reads_opt_z_(...)
#define _In_reads_or_z_(...)
#define _In_range_(...)
#define _Out_writes_(...)
#define _Out_writes_opt_(...)
#define _Out_writes_bytes_(...)
#define _Out_writes_bytes_opt_(...)
#define _Out_writes_z_(...)
#define _Out_writes_opt_z_(...)
#define _Out_writes_all_(...)
#define _Out_writes_bytes_all_(...)
#define _Out_writes_to_(...)
#define _Out_writes_to_opt_(...)
#define _Out_writes_bytes_to_(...)
#define _Out_writes_bytes_to_opt_(...)
#define _Out_range_(...)
#define _Inout_updates_(...)
#define _Inout_updates_opt_(...)
#define _Inout_updates_bytes_(...)
#define _Inout_updates_bytes_opt_(...)
#define _Inout_updates_z_(...)
#define _Inout_updates_to_(...)
#define _Inout_updates_bytes_to_(...)
#define _Inout_updates_all_(...)
#define _Outptr_result_buffer_(...)
#define _Outptr_result_bytebuffer_(...)
#define _Outptr_result_buffer_maybenull_(...)
#define _Outptr_result_buffer_to_(...)
#define _Field_size_(...)
#define _Field_size_opt_(...)
#define _Field_size_bytes_(...)
#define _Field_size_bytes_opt_(...)
#define _Field_size_full_(...)
#define _Field_range_(...)
#define _Success_(...)
#define _When_(...)
#define _At_(...)
#define _On_failure_(...)
#define _Always_(...)
#define _Return_type_success_(...)
#define _Ret_range_(...)
#define _Ret_writes_(...)
#define _Ret_writes_bytes_(...)
#define _Ret_writes_z_(...)
#define _Ret_writes_maybenull_(...)
#define _Guarded_by_(...)
#define _Acquires_lock_(...)
#define _Releases_lock_(...)
#define _Requires_lock_held_(...)
#define _Requires_lock_not_held_(...)
#define _Acquires_exclusive_lock_(...)
#define _Releases_exclusive_lock_(...)
#define _Acquires_shared_lock_(...)
#define _Releases_shared_lock_(...)
#define _Requires_exclusive_lock_held_(...)
#define _Requires_shared_lock_held_(...)
#define _Analysis_assume_(...) ((void)0)
#define _Analysis_assume_lock_held_(...) ((void)0)
#define _Analysis_assume_lock_not_held_(...) ((void)0)
#define _Readable_bytes_(...)
#define _Writable_bytes_(...)
#define _Readable_elements_(...)
#define _Writable_elements_(...)
#define _Deref_out_range_(...)
#define _Struct_size_bytes_(...)
#define _Post_satisfies_(...)
#define _Pre_satisfies_(...)
#define _Pre_readable_size_(...)
#define _Post_readable_size_(...)

#endif
