// SPDX-License-Identifier: GPL-2.0
/*
 * Self-test at load, in builds with DEBUG=1: header layout, wrapping, plans, media time.
 *
 * A failure keeps the module from loading and names the claim. Claims about files and sockets are
 * checked from outside (check/).
 *
 * Sources: RFC 3550, section 5.1 (golden header).
 */
#include <linux/kernel.h>
#include <linux/string.h>

#include "session.h"

static int pwr_test(bool passed, const char *claim)
{
	if (!passed)
		pr_err("pagewire_rtp: self-test: not so: %s\n", claim);
	return passed ? 0 : -EIO;
}

static int pwr_test_header(void)
{
	static const u8 plain[] = { 0x80, 0x21, 0xff, 0xff, 0x12, 0x34, 0x56, 0x78,
				    0x9a, 0xbc, 0xde, 0xf0 };
	static const u8 marked[] = { 0x80, 0xe0, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff,
				     0x00, 0x00, 0x00, 0x01 };
	u8 at[PWR_RTP_HEADER_BYTES + 4] __aligned(4);
	int error;

	memset(at, 0xa5, sizeof(at));
	pwr_header_rtp(at, 33, false, 0xffff, 0x12345678, 0x9abcdef0);
	error = pwr_test(!memcmp(at, plain, sizeof(plain)), "a header as in RFC 3550");
	error = error ?: pwr_test(at[PWR_RTP_HEADER_BYTES] == 0xa5, "a header has 12 bytes");
	pwr_header_rtp(at, 96, true, 0, 0xffffffff, 1);
	return error ?: pwr_test(!memcmp(at, marked, sizeof(marked)), "a header with marker");
}

static int pwr_test_plan(void)
{
	struct pagewire_rtp_packet plan[] = {
		{ 1316, 0, 0xfffffff0 }, { 1, PAGEWIRE_RTP_MARKER, 0x10 }, { 65495, 0, 0 },
	};
	u64 sum = 1316 + 1 + 65495;
	int error;

	error = pwr_test(!pwr_plan_check(plan, 3, sum, 12), "a good plan is good");
	error = error ?: pwr_test(pwr_plan_check(plan, 3, sum - 1, 12), "payloads must add up");
	error = error ?: pwr_test(pwr_plan_check(plan, 3, sum, 13), "a datagram has its limit");
	plan[1].flags = 2;
	error = error ?: pwr_test(pwr_plan_check(plan, 3, sum, 12), "flags are checked");
	plan[1].flags = 0;
	plan[1].payload_bytes = 0;
	return error ?: pwr_test(pwr_plan_check(plan, 3, sum - 1, 12), "no packet is empty");
}

/* Media time across a wrap of timestamps, and a step back as of frames in decoding order. */
static int pwr_test_pacing(struct pwr_session *session)
{
	static struct pagewire_rtp_packet plan[] = {
		{ 10, 0, 0xfffffff0 },
		{ 20, 0, 0xfffffff0 + 900 },	/* wraps */
		{ 30, 0, 0xfffffff0 + 450 },
		{ 40, 0, 0xfffffff0 + 90000 },
	};
	struct pwr_place place = { .bytes_left = 100 };
	int error, index;

	session->plan = plan;
	session->clock_rate = 90000;
	pwr_place_advance(session, &place);
	error = pwr_test(ktime_to_ns(place.due) == 10 * NSEC_PER_MSEC, "timestamps wrap");
	pwr_place_advance(session, &place);
	error = error ?: pwr_test(ktime_to_ns(place.due) == 10 * NSEC_PER_MSEC,
				  "a step back is due at once");
	pwr_place_advance(session, &place);
	error = error ?: pwr_test(ktime_to_ns(place.due) == NSEC_PER_SEC, "nothing drifts");
	error = error ?: pwr_test(place.offset == 60 && place.bytes_left == 40, "places add up");
	error = error ?: pwr_test(!pwr_plan_span_check(plan, 4, 90000), "a second is no span");
	for (index = 0; index < 4; index++)
		plan[index].timestamp = index * 0x7fffffffu;
	return error ?: pwr_test(pwr_plan_span_check(plan, 4, 1000), "a span has its limit");
}

int pwr_self_test(void)
{
	static struct pwr_session session;
	int error;

	error = pwr_test_header();
	error = error ?: pwr_test_plan();
	error = error ?: pwr_test_pacing(&session);
	if (!error)
		pr_info("pagewire_rtp: self-test passed\n");
	return error;
}
