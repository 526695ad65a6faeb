// SPDX-License-Identifier: GPL-2.0
/*
 * Fault injection: every allocation of a call, and every copy from or to the caller, fails once,
 * one after the other (fail-nth), until a call goes through with none left to fail. Each such call
 * has an error or a short count, and what it says it sent did arrive.
 *
 * Needs a kernel with FAILSLAB or FAIL_PAGE_ALLOC; skipped on others.
 *
 * Source: Documentation/fault-injection/fault-injection.rst.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define FAIL_NTH	"/proc/thread-self/fail-nth"
#define ATTEMPTS_MAX	2000

static struct pagewire_rtp_packet plan[20];

static void settle(const char *folder)
{
	static const char *const set[][2] = {
		{ "ignore-gfp-wait", "N" }, { "verbose", "0" }, { "min-order", "0" },
	};
	char path[96];
	size_t index;

	for (index = 0; index < ARRAY_SIZE(set); index++) {
		snprintf(path, sizeof(path), "%s/%s", folder, set[index][0]);
		write_file(path, set[index][1]);
	}
}

/*
 * The call with its n-th allocation, or copy from or to user memory, failing; false when it had
 * fewer. Asking how many are left may itself be what fails then.
 */
static bool with_fault(long attempt, int device, unsigned long command, void *argument, int *number)
{
	char text[24];
	bool failed;
	int file;

	snprintf(text, sizeof(text), "%ld", attempt);
	file = open(FAIL_NTH, O_RDWR | O_CLOEXEC);
	if (file < 0 || write(file, text, strlen(text)) < 0)
		fatal(FAIL_NTH);
	*number = ioctl(device, command, argument) ? errno : 0;
	memset(text, 0, sizeof(text));
	failed = pread(file, text, sizeof(text) - 1, 0) > 0 && strtol(text, NULL, 10) == 0;
	while (write(file, "0", 1) < 0)
		;
	close(file);
	return failed;
}

static uint64_t arrived(void)
{
	uint64_t packets = 0;
	uint8_t byte;

	while (recv(world.receiver, &byte, 1, MSG_DONTWAIT) >= 0)
		packets++;
	return packets;
}

static bool is_shortage(int number)
{
	return number == ENOMEM || number == ENOBUFS || number == EFAULT || number == EAGAIN;
}

static void inject_send(const char *name, struct pagewire_rtp_send good)
{
	long attempt, wrong = 0, refused = 0;

	for (attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
		struct pagewire_rtp_send send = good;
		uint64_t packets;
		bool failed;
		int number;

		failed = with_fault(attempt, world.device, PAGEWIRE_RTP_SEND, &send, &number);
		packets = arrived();
		refused += number != 0;
		/*
		 * The receiver may have lost one, for want of memory of its own; and a call that
		 * sent but could not write down what is EFAULT.
		 */
		if (number ? !is_shortage(number) || (packets && number != EFAULT) :
			     packets > send.sent_packets || packets + 1 < send.sent_packets)
			wrong++;
		if (!failed)
			break;
	}
	ok(!wrong && attempt > 1 && attempt <= ATTEMPTS_MAX,
	   "%s with each of %ld allocations failing: %ld errors, %ld wrong", name, attempt - 1,
	   refused, wrong);
}

static void inject_start(void)
{
	struct pagewire_rtp_start start = { .send = request_file(0, 0, 0), .clock_rate = 90000,
					    .wake_packets = 1 };
	long attempt, wrong = 0;
	uint32_t index;

	for (index = 0; index < 20; index++)
		start.send.length += plan[index].payload_bytes;
	start.send.plan = (uintptr_t)plan;
	start.send.packets = 20;
	for (attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
		bool failed;
		int number;

		failed = with_fault(attempt, world.device, PAGEWIRE_RTP_START, &start, &number);
		wrong += number && !is_shortage(number);
		if (!number)
			ioctl(world.device, PAGEWIRE_RTP_STOP);
		if (!failed)
			break;
	}
	arrived();
	ok(!wrong && attempt <= ATTEMPTS_MAX, "start with each of %ld allocations failing",
	   attempt - 1);
}

void check_injection(void)
{
	struct pagewire_rtp_send send = request_file(100, 200 * 1316, 1316);
	uint32_t index;

	if (access(FAIL_NTH, W_OK) || (access("/sys/kernel/debug/failslab", X_OK) &&
				       access("/sys/kernel/debug/fail_page_alloc", X_OK))) {
		tap_skip("no fault injection in this kernel", "faults injected");
		return;
	}
	settle("/sys/kernel/debug/failslab");
	settle("/sys/kernel/debug/fail_page_alloc");
	settle("/sys/kernel/debug/fail_usercopy");
	arrived();
	inject_send("krtpsendfile", send);
	send.segments = 7;
	inject_send("krtpsendfile in batches", send);
	send.segments = 1;
	send.source = PAGEWIRE_RTP_FROM_MEMORY;
	send.file_fd = -1;
	send.offset = (uintptr_t)world.map;
	inject_send("krtpmsend", send);
	send = request_file(0, 0, 0);
	for (index = 0; index < 20; index++) {
		plan[index].payload_bytes = 1000 + index;
		plan[index].timestamp = index * 9000;
		send.length += plan[index].payload_bytes;
	}
	send.plan = (uintptr_t)plan;
	send.packets = 20;
	inject_send("a plan", send);
	inject_start();
}
