// SPDX-License-Identifier: GPL-2.0
/*
 * Makes ptrace(2) look like that of a host with a larger register state, or of one that forbids it.
 *
 * A processor with AMX has 11008 bytes of XSAVE state, and Linux sets it for a traced process only
 * as a whole: PTRACE_SETREGSET of NT_X86_XSTATE with less is EFAULT (arch/x86/kernel/fpu/regset.c,
 * xstateregs_set). User Mode Linux sets it at each return to a program. Loaded before the kernel
 * (LD_PRELOAD), this shows on any host what happens there:
 *
 *   HOST_STATE_BYTES=11008   sets with less are refused; reads fill that much, as far as there is
 *                            room, so that a buffer that is too small is overwritten here as well
 *   HOST_STATE_BYTES=0       ptrace(2) is refused altogether, as by a container's seccomp filter
 *
 * Does not keep the contents of tiles: no program of the laboratory uses them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef long (*ptrace_call)(int request, pid_t pid, void *address, void *data);

static long larger_state(ptrace_call host, int request, pid_t pid, struct iovec *state, size_t size)
{
	size_t room = state->iov_len;
	long result;

	if (request == PTRACE_SETREGSET && room < size) {
		errno = EFAULT;
		return -1;
	}
	result = host(request, pid, (void *)NT_X86_XSTATE, state);
	if (result == 0 && request == PTRACE_GETREGSET) {
		size_t filled = room < size ? room : size;

		if (filled > state->iov_len) {
			memset((char *)state->iov_base + state->iov_len, 0, filled - state->iov_len);
			state->iov_len = filled;
		}
	}
	return result;
}

long ptrace(enum __ptrace_request request, ...)
{
	const char *bytes = getenv("HOST_STATE_BYTES");
	size_t size = bytes ? strtoul(bytes, NULL, 10) : 0;
	ptrace_call host = (ptrace_call)dlsym(RTLD_NEXT, "ptrace");
	va_list arguments;
	void *address, *data;
	pid_t pid;

	va_start(arguments, request);
	pid = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	if (size == 0) {
		errno = EPERM;
		return -1;
	}
	if ((request == PTRACE_SETREGSET || request == PTRACE_GETREGSET) &&
	    address == (void *)NT_X86_XSTATE)
		return larger_state(host, request, pid, data, size);
	return host(request, pid, address, data);
}
