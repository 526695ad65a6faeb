// SPDX-License-Identifier: GPL-2.0
/* The kernel's log: nothing at the level of a warning or above may have come. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#define LEVEL_WARNING	4

static int log_file = -1;

void kmsg_begin(void)
{
	log_file = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (log_file >= 0)
		lseek(log_file, 0, SEEK_END);
}

/* Allocations that were made to fail are told of as warnings: only traces count then. */
static bool is_bad(const char *record, const char *text, bool faults_wanted)
{
	if (strstr(text, "BUG:") || strstr(text, "WARNING:") || strstr(text, "Oops") ||
	    strstr(text, "refcount_t:") || strstr(text, "suspected memory leaks"))
		return true;
	/* An emulated machine that its host made wait: nothing that a module could do. */
	if (strstr(text, "hrtimer: interrupt took"))
		return false;
	return !faults_wanted && strtol(record, NULL, 10) % 8 <= LEVEL_WARNING;
}

void kmsg_end(const char *when, bool faults_wanted)
{
	char record[8192];
	ssize_t length;
	int bad = 0;

	if (log_file < 0) {
		tap_skip("/dev/kmsg cannot be read", "no warning in the kernel's log: %s", when);
		return;
	}
	for (;;) {
		const char *text;

		length = read(log_file, record, sizeof(record) - 1);
		if (length < 0 && errno == EPIPE)
			continue;	/* overwritten: what is left is read */
		if (length <= 0)
			break;
		record[length] = 0;
		text = strchr(record, ';');
		if (text && is_bad(record, text, faults_wanted)) {
			bad++;
			tap_note("kernel: %s", text + 1);
		}
	}
	ok(!bad, "no warning in the kernel's log: %s", when);
}
