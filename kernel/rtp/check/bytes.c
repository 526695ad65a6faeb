// SPDX-License-Identifier: GPL-2.0
/*
 * Byte compare: every mode of data-paths, single packets and batches, unaligned offsets, plans,
 * wraps; 4,000 packets each for the modes, and each byte of each compared with what was asked for.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define DATAGRAM_BYTES	65536
#define FRAGMENTS	"/proc/sys/net/core/max_skb_frags"
#define FIRST_SEQUENCE	65530u
#define FIRST_TIMESTAMP	0xffffff00u

/* One mode: a request of data-paths, and its name. */
struct mode {
	const char *name;
	uint8_t source;
	uint8_t header;
	bool one_packet;	/* a call for each packet */
	bool corked;		/* header sent by the caller, with the socket corked */
};

static const struct mode modes[] = {
	{ "msend", PAGEWIRE_RTP_FROM_MEMORY, PAGEWIRE_RTP_HEADER_NONE, true, false },
	{ "kmsend", PAGEWIRE_RTP_FROM_MEMORY, PAGEWIRE_RTP_HEADER_NONE, false, false },
	{ "ksendfile", PAGEWIRE_RTP_FROM_FILE, PAGEWIRE_RTP_HEADER_NONE, false, false },
	{ "mmap_rtpmsend", PAGEWIRE_RTP_FROM_MEMORY, PAGEWIRE_RTP_HEADER_CALLER, true, false },
	{ "mmap_send_msend", PAGEWIRE_RTP_FROM_MEMORY, PAGEWIRE_RTP_HEADER_NONE, true, true },
	{ "rtpsendfile", PAGEWIRE_RTP_FROM_FILE, PAGEWIRE_RTP_HEADER_CALLER, true, false },
	{ "krtpsendfile", PAGEWIRE_RTP_FROM_FILE, PAGEWIRE_RTP_HEADER_ENGINE, false, false },
	{ "krtpmsend", PAGEWIRE_RTP_FROM_MEMORY, PAGEWIRE_RTP_HEADER_ENGINE, false, false },
};

static uint8_t datagram[DATAGRAM_BYTES];

/* The header of packet @index, made here and not by the engine. */
static void header_of(uint32_t index, uint32_t timestamp, bool marker, uint8_t *header)
{
	uint16_t sequence = FIRST_SEQUENCE + index;
	const uint8_t fields[RTP_BYTES] = {
		0x80, (marker ? 128 : 0) + 33, sequence >> 8, sequence & 255,
		timestamp >> 24, timestamp >> 16 & 255, timestamp >> 8 & 255, timestamp & 255,
		0x5e, 0xed, 0x12, 0x34,
	};

	memcpy(header, fields, RTP_BYTES);
}

/* Receives a packet and compares; true when all bytes are as they should be. */
static bool packet_is(int receiver, const uint8_t *header, size_t header_bytes,
		      const uint8_t *payload, size_t payload_bytes)
{
	ssize_t length = recv(receiver, datagram, sizeof(datagram), MSG_DONTWAIT);

	return length == (ssize_t)(header_bytes + payload_bytes) &&
	       !memcmp(datagram, header, header_bytes) &&
	       !memcmp(datagram + header_bytes, payload, payload_bytes);
}

/* A call of a mode for @packets packets from packet @first; returns what of them came right. */
static uint32_t call(const struct mode *mode, uint64_t offset, uint32_t first, uint32_t packets,
		     uint16_t payload_bytes, uint8_t segments)
{
	bool headers = mode->corked || mode->header != PAGEWIRE_RTP_HEADER_NONE;
	uint8_t header[RTP_BYTES], *all = malloc((size_t)packets * RTP_BYTES);
	uint64_t from = offset + (uint64_t)first * payload_bytes;
	struct pagewire_rtp_send send;
	uint32_t index, right = 0;
	int on = 1, off = 0;

	send = request_file(from, (uint64_t)packets * payload_bytes, payload_bytes);
	send.header = mode->header;
	send.segments = segments;
	send.sequence = FIRST_SEQUENCE + first;
	send.timestamp = FIRST_TIMESTAMP + first * send.timestamp_step;
	if (mode->source == PAGEWIRE_RTP_FROM_MEMORY) {
		send.source = mode->source;
		send.file_fd = -1;
		send.offset = (uintptr_t)world.map + from;
	}
	for (index = 0; index < packets; index++)
		header_of(first + index, FIRST_TIMESTAMP + (first + index) * 3600, false,
			  all + index * RTP_BYTES);
	if (mode->header == PAGEWIRE_RTP_HEADER_CALLER) {
		send.headers = (uintptr_t)all;
		send.header_bytes = RTP_BYTES;
		send.packets = packets;
	}
	if (mode->corked) {
		setsockopt(world.sender, SOL_UDP, UDP_CORK, &on, sizeof(on));
		if (write(world.sender, all, RTP_BYTES) != RTP_BYTES)
			fatal("sending a header");
	}
	if (send_errno(&send))
		fatal(mode->name);
	if (mode->corked)
		setsockopt(world.sender, SOL_UDP, UDP_CORK, &off, sizeof(off));
	for (index = 0; index < send.sent_packets; index++) {
		memcpy(header, all + index * RTP_BYTES, RTP_BYTES);
		right += packet_is(world.receiver, header, headers ? RTP_BYTES : 0,
				   world.bytes + from + (uint64_t)index * payload_bytes,
				   payload_bytes);
	}
	free(all);
	if (send.sent_packets != packets || send.sent_bytes != send.length)
		return 0;
	if (mode->header == PAGEWIRE_RTP_HEADER_ENGINE &&
	    (send.sequence != (uint16_t)(FIRST_SEQUENCE + first + packets) ||
	     send.timestamp != FIRST_TIMESTAMP + (first + packets) * 3600))
		return 0;
	return right;
}

static void compare(const struct mode *mode, uint64_t offset, uint32_t packets,
		    uint16_t payload_bytes, uint8_t segments)
{
	uint32_t per_call = mode->one_packet ? 1 : world.call_packets;
	uint32_t first, right = 0;

	if (payload_bytes > 1500 && per_call > 16)
		per_call = 16;
	for (first = 0; first < packets; first += per_call)
		right += call(mode, offset, first,
			      packets - first < per_call ? packets - first : per_call,
			      payload_bytes, segments);
	ok(right == packets, "%s: %u packets of %u from offset %llu, segments %u: %u bad",
	   mode->name, packets, payload_bytes, (unsigned long long)offset, segments,
	   packets - right);
	world_drain(world.receiver);
}

/* True when this kernel can send batches. */
static bool has_segments(void)
{
	struct pagewire_rtp_send send = request_file(0, 1, 1);

	send.segments = 2;
	if (send_errno(&send) == EOPNOTSUPP)
		return false;
	world_drain(world.receiver);
	return true;
}

static void check_modes(void)
{
	static const uint8_t batches[] = { 7, 64 };
	static const uint64_t offsets[] = { 1, 4095, 4097, 12345 };
	static const uint16_t sizes[] = { 1, 7, 188, 1400, 1456, 4096, 8191, 40000, 65495 };
	bool segments = has_segments();
	size_t mode, index;

	world_drain(world.receiver);
	for (mode = 0; mode < ARRAY_SIZE(modes); mode++) {
		compare(&modes[mode], 0, PACKETS, 1316, 1);
		for (index = 0; index < 4; index++)
			compare(&modes[mode], offsets[index], 100, 1316, 1);
		for (index = 0; index < ARRAY_SIZE(sizes); index++)
			compare(&modes[mode], 3, 50, sizes[index], 0);
		for (index = 0; index < 2 && !modes[mode].one_packet; index++) {
			if (!segments) {
				tap_skip("no UDP_SEGMENT in this kernel's engine", "%s in batches",
					 modes[mode].name);
				continue;
			}
			compare(&modes[mode], 0, PACKETS, 1316, batches[index]);
			compare(&modes[mode], 12345, 500, 1400, batches[index]);
			compare(&modes[mode], 1, 500, 188, batches[index]);
			compare(&modes[mode], 4095, 40, 20000, batches[index]);
		}
	}
}

/* Plans: sizes of all kinds, markers, timestamps of their own; the engine's header. */
static void check_plan(uint8_t source, uint8_t segments, uint32_t packets)
{
	struct pagewire_rtp_packet *plan = calloc(packets, sizeof(*plan));
	struct pagewire_rtp_send send = request_file(77, 0, 0);
	uint64_t at = 77;
	uint32_t index, right = 0;
	uint8_t header[RTP_BYTES];

	for (index = 0; index < packets; index++) {
		/* runs of equal sizes, smaller ones, larger ones */
		plan[index].payload_bytes = index % 9 < 6 ? 1316 : 1 + index * 7919 % 1316;
		plan[index].flags = index % 9 == 8 ? PAGEWIRE_RTP_MARKER : 0;
		plan[index].timestamp = FIRST_TIMESTAMP + index / 9 * 3003;
		send.length += plan[index].payload_bytes;
	}
	send.plan = (uintptr_t)plan;
	send.packets = packets;
	send.segments = segments;
	send.sequence = FIRST_SEQUENCE;
	if (source == PAGEWIRE_RTP_FROM_MEMORY) {
		send.source = source;
		send.file_fd = -1;
		send.offset = (uintptr_t)world.map + at;
	}
	if (send_errno(&send))
		fatal("a plan");
	for (index = 0; index < packets; index++) {
		header_of(index, plan[index].timestamp, plan[index].flags, header);
		right += packet_is(world.receiver, header, RTP_BYTES, world.bytes + at,
				   plan[index].payload_bytes);
		at += plan[index].payload_bytes;
	}
	ok(right == packets && send.sent_packets == packets && send.sent_bytes == send.length,
	   "a plan of %u packets with markers from %s, segments %u: %u bad", packets,
	   source ? "memory" : "a file", segments, packets - right);
	free(plan);
}

/* Over IPv6, where there is IPv6. */
static void check_ipv6(void)
{
	int receiver = world.receiver, sender = world.sender;

	world_pair(AF_INET6, &world.receiver, &world.sender);
	if (world.receiver < 0) {
		tap_skip("no IPv6 here", "IPv6");
	} else {
		tap_note("over IPv6:");
		compare(&modes[6], 12345, 500, 1316, 1);
		compare(&modes[7], 12345, 500, 1316, has_segments() ? 7 : 1);
		close(world.receiver);
		close(world.sender);
	}
	world.receiver = receiver;
	world.sender = sender;
	world_drain(receiver);
}

/* Where the machine allows an sk_buff one fragment, packets of more pieces go by copy. */
static void check_one_fragment(void)
{
	char former[16];

	snprintf(former, sizeof(former), "%ld", number_in(FRAGMENTS, ""));
	if (getpid() != 1 || !write_file(FRAGMENTS, "1")) {
		tap_skip("needs a machine of its own", "one fragment for each sk_buff");
		return;
	}
	tap_note("one fragment for each sk_buff:");
	compare(&modes[6], 12345, 200, 1316, 1);
	compare(&modes[6], 4095, 20, 40000, 1);
	compare(&modes[7], 12345, 200, 1316, has_segments() ? 7 : 1);
	write_file(FRAGMENTS, former);
}

/* Early ends: a last packet that is shorter, and nothing at or after the end. */
static void check_end_of_file(void)
{
	struct pagewire_rtp_send send = request_file(world.file_bytes - 2000, 1 << 20, 1316);
	uint8_t header[RTP_BYTES];

	send.sequence = FIRST_SEQUENCE;
	send.timestamp = FIRST_TIMESTAMP;
	ok(!send_errno(&send) && send.sent_packets == 2 && send.sent_bytes == 2000,
	   "a range past the end of the file sends what there is");
	header_of(0, FIRST_TIMESTAMP, false, header);
	ok(packet_is(world.receiver, header, RTP_BYTES, world.bytes + world.file_bytes - 2000,
		     1316), "its first packet is whole");
	header_of(1, FIRST_TIMESTAMP + 3600, false, header);
	ok(packet_is(world.receiver, header, RTP_BYTES, world.bytes + world.file_bytes - 684, 684),
	   "its last packet is shorter");
	send = request_file(world.file_bytes, 1316, 1316);
	ok(!send_errno(&send) && !send.sent_packets && !send.sent_bytes,
	   "at the end of the file nothing is sent, and that is no error");
	send = request_file(1ull << 60, 1316, 1316);
	ok(!send_errno(&send) && !send.sent_packets, "far after the end nothing is sent");
}

void check_bytes(void)
{
	uint32_t packets = world.call_packets;

	check_modes();
	check_plan(PAGEWIRE_RTP_FROM_FILE, 1, packets);
	check_plan(PAGEWIRE_RTP_FROM_MEMORY, 1, packets);
	if (has_segments()) {
		check_plan(PAGEWIRE_RTP_FROM_FILE, 7, packets);
		check_plan(PAGEWIRE_RTP_FROM_MEMORY, 64, packets);
	}
	world_drain(world.receiver);
	check_ipv6();
	check_one_fragment();
	check_end_of_file();
}
