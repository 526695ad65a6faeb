// SPDX-License-Identifier: GPL-2.0
/* Results in the form of the Test Anything Protocol, and what ends the check at once. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int results, failures;

bool tap_result(bool passed, const char *file, int line, const char *what, ...)
{
	va_list words;

	printf("%sok %d - ", passed ? "" : "not ", ++results);
	va_start(words, what);
	vprintf(what, words);
	va_end(words);
	printf("\n");
	if (!passed) {
		failures++;
		printf("# %s:%d\n", file, line);
	}
	fflush(stdout);
	return passed;
}

void tap_skip(const char *why, const char *what, ...)
{
	va_list words;

	printf("ok %d - ", ++results);
	va_start(words, what);
	vprintf(what, words);
	va_end(words);
	printf(" # SKIP %s\nskip: %s\n", why, why);
	fflush(stdout);
}

void tap_note(const char *text, ...)
{
	va_list words;

	printf("# ");
	va_start(words, text);
	vprintf(text, words);
	va_end(words);
	printf("\n");
	fflush(stdout);
}

/* The plan; returns how many failed. */
int tap_end(void)
{
	printf("1..%d\n", results);
	if (failures)
		printf("# %d failed\n", failures);
	fflush(stdout);
	return failures;
}

/* The check itself cannot go on; that is no result of the module's. */
void fatal(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	fflush(stdout);
	guest_end(1);
}
