// SPDX-License-Identifier: GPL-2.0
/*
 * Checks the module pagewire_rtp from outside, through /dev/pagewire_rtp; results as TAP.
 *
 *	pagewire_rtp_check [paced=SECONDS] [fuzz=ROUNDS | fuzz_s=SECONDS] [seed=NUMBER]
 *			   [only=NAME,NAME...]
 *
 * Runs as whoever may open the device; what needs root is skipped otherwise, with the reason. As
 * the first process of a virtual machine (init=) it sets the machine up, loads the module from
 * /lib/modules and powers off at the end.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"

static const char *only;

static bool wanted(const char *name)
{
	if (only && !strstr(only, name))
		return false;
	tap_note("%s", name);
	return true;
}

int main(int count, char **words)
{
	unsigned int paced = 5, fuzz_s = 0;
	long fuzz = 20000;
	uint64_t seed = 1;
	int index;

	setvbuf(stdout, NULL, _IOLBF, 0);
	guest_begin();
	for (index = 1; index < count; index++) {
		char *value = strchr(words[index], '=');

		if (!value)
			continue;
		value++;
		if (!strncmp(words[index], "paced=", 6))
			paced = atoi(value);
		else if (!strncmp(words[index], "fuzz=", 5))
			fuzz = atol(value);
		else if (!strncmp(words[index], "fuzz_s=", 7))
			fuzz_s = atoi(value);
		else if (!strncmp(words[index], "seed=", 5))
			seed = strtoull(value, NULL, 0);
		else if (!strncmp(words[index], "only=", 5))
			only = value;
	}
	kmsg_begin();
	world_open();
	check_leaks_begin();
	if (wanted("bytes"))
		check_bytes();
	if (wanted("fields"))
		check_fields();
	if (wanted("faults"))
		check_faults();
	if (wanted("released"))
		check_released();
	if (wanted("sessions"))
		check_sessions();
	if (wanted("users"))
		check_users();
	if (wanted("hung"))
		check_hung();
	if (paced && wanted("paced"))
		check_paced(paced);
	if (fuzz && wanted("fuzz"))
		check_fuzz(seed, fuzz, fuzz_s);
	kmsg_end("before faults are injected", false);
	if (wanted("injection")) {
		check_injection();
		kmsg_end("with faults injected", true);
	}
	if (wanted("leaks"))
		check_leaks_end();
	if (wanted("unload"))
		check_unload();
	kmsg_end("at the end", false);
	guest_end(tap_end());
}
