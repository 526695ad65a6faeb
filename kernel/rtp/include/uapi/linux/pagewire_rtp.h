/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * pagewire_rtp: the interface of the in-kernel RTP engine, /dev/pagewire_rtp.
 *
 * One call sends a whole range of a file, or of memory that a file is mapped to, as the payload of
 * UDP datagrams: no copy of the payload, one crossing whatever the number of packets. The headers
 * are none, the caller's, or RTP's fixed header (RFC 3550, section 5.1) made by the engine.
 *
 * A session is one paced transmission of a file, started by a call and then sent from a timer in
 * the kernel with no call at all; a descriptor of the device has at most one, and it ends with the
 * descriptor.
 *
 * All structures have the same layout for 32-bit and 64-bit callers: fixed widths, every field on
 * its natural boundary, addresses as __u64.
 */
#ifndef _UAPI_LINUX_PAGEWIRE_RTP_H
#define _UAPI_LINUX_PAGEWIRE_RTP_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Source of payload: a file (offset in it), or the caller's memory (offset an address). */
#define PAGEWIRE_RTP_FROM_FILE		0
#define PAGEWIRE_RTP_FROM_MEMORY	1

/* Header before each payload. */
#define PAGEWIRE_RTP_HEADER_NONE	0	/* nothing */
#define PAGEWIRE_RTP_HEADER_CALLER	1	/* header_bytes from headers, one after the other */
#define PAGEWIRE_RTP_HEADER_ENGINE	2	/* 12 bytes of RTP, made from the fields below */

#define PAGEWIRE_RTP_HEADER_BYTES_MAX	128	/* of a header of the caller's */
#define PAGEWIRE_RTP_PAYLOAD_BYTES_MAX	65495	/* 65507 less RTP's fixed header */
#define PAGEWIRE_RTP_PACKETS_MAX	65536	/* of a plan, or of headers, in one call */
#define PAGEWIRE_RTP_SEGMENTS_MAX	64	/* packets in one UDP_SEGMENT send */

#define PAGEWIRE_RTP_MARKER		1	/* of struct pagewire_rtp_packet: the M bit */

/**
 * struct pagewire_rtp_packet - one packet of a plan
 * @payload_bytes: bytes of payload, 1 to PAGEWIRE_RTP_PAYLOAD_BYTES_MAX
 * @flags: PAGEWIRE_RTP_MARKER or 0
 * @timestamp: RTP timestamp of the packet
 */
struct pagewire_rtp_packet {
	__u16 payload_bytes;
	__u16 flags;
	__u32 timestamp;
};

/**
 * struct pagewire_rtp_send - what PAGEWIRE_RTP_SEND sends, and how far it came
 * @file_fd: open for reading, a regular file; -1 with PAGEWIRE_RTP_FROM_MEMORY
 * @socket_fd: a connected UDP socket, IPv4 or IPv6
 * @offset: first byte of payload: offset in the file, or address
 * @length: bytes of payload in all, at least 1
 * @plan: address of struct pagewire_rtp_packet[@packets], whose payloads add up to @length; or 0:
 *	all packets have @payload_bytes, the last perhaps fewer
 * @headers: with PAGEWIRE_RTP_HEADER_CALLER, address of @packets headers of @header_bytes; else 0
 * @packets: entries at @plan and @headers, 1 to PAGEWIRE_RTP_PACKETS_MAX; 0 without both
 * @payload_bytes: of each packet without a plan; 0 with one
 * @header_bytes: with PAGEWIRE_RTP_HEADER_CALLER, 1 to PAGEWIRE_RTP_HEADER_BYTES_MAX; else 0
 * @source: PAGEWIRE_RTP_FROM_...
 * @header: PAGEWIRE_RTP_HEADER_...
 * @segments: packets handed to the network stack at once as UDP_SEGMENT; 0 and 1 mean single
 *	packets. With a plan, packets that are not of one size end a batch early.
 * @payload_type: RTP payload type, 0 to 127
 * @ssrc: RTP synchronisation source
 * @timestamp: of the first packet without a plan; after the call that of the next
 * @timestamp_step: what is added from packet to packet without a plan
 * @sequence: of the first packet; after the call that of the next
 * @reserved: 0
 * @sent_packets: out: packets handed to the stack
 * @sent_bytes: out: bytes of payload in them
 *
 * The call returns 0 when it sent anything, also if less than was asked (the file ended, a signal
 * came, the socket refused a later packet): compare @sent_bytes with @length and call again for the
 * rest, which then reports what was wrong if it still is, as with sendmmsg(2). It returns an error
 * when it sent nothing; 0 with @sent_packets 0 when the file ends at or before @offset. @timestamp
 * and @sequence move on only with PAGEWIRE_RTP_HEADER_ENGINE, @timestamp only without a plan. A
 * packet is sent whole or not at all; only where the file ends, and without a plan, the last is
 * shorter.
 *
 * Errors, besides those of reading the file and of sending on the socket (EAGAIN only when the
 * socket is non-blocking, ENOBUFS only with IP_RECVERR, ECONNREFUSED, EMSGSIZE, ...):
 *	EBADF		no such descriptor, or @file_fd is not open for reading
 *	EINVAL		a field out of range; @file_fd is not a regular file, or cannot be spliced
 *	EOPNOTSUPP	@segments above 1 before Linux 6.5
 *	ENOTSOCK	@socket_fd is no socket
 *	EPROTOTYPE	@socket_fd is not UDP over IPv4 or IPv6
 *	EDESTADDRREQ	@socket_fd is not connected
 *	EFAULT		memory at @plan, @headers or @offset is not readable; or the request is not
 *			writable, and then packets may have been sent
 *	ENOMEM		no memory for plan or headers
 *	EINTR		a signal came before the first packet
 *	EMSGSIZE	a packet does not fit the path, or lies in more than 24 pieces of memory
 *	EIO		the device cannot send batches: use @segments 1
 */
struct pagewire_rtp_send {
	__s32 file_fd;
	__s32 socket_fd;
	__u64 offset;
	__u64 length;
	__u64 plan;
	__u64 headers;
	__u32 packets;
	__u16 payload_bytes;
	__u16 header_bytes;
	__u8 source;
	__u8 header;
	__u8 segments;
	__u8 payload_type;
	__u32 ssrc;
	__u32 timestamp;
	__u32 timestamp_step;
	__u16 sequence;
	__u16 reserved[3];
	__u64 sent_packets;
	__u64 sent_bytes;
};

/* Limits of sessions. */
#define PAGEWIRE_RTP_INTERVAL_NS_MIN	1000ULL
#define PAGEWIRE_RTP_INTERVAL_NS_MAX	3600000000000ULL	/* an hour */
#define PAGEWIRE_RTP_CLOCK_RATE_MIN	1000			/* Hz */
#define PAGEWIRE_RTP_PLAN_SECONDS_MAX	2678400			/* 31 days */
#define PAGEWIRE_RTP_WAKE_PACKETS_MAX	64
#define PAGEWIRE_RTP_WAKE_NS_MIN	100000ULL
#define PAGEWIRE_RTP_LATE_NS		2000000ULL		/* later than this counts as late */

/**
 * struct pagewire_rtp_start - a session to be started
 * @send: what is sent: from a file, header none or the engine's; @send.sent_... are not used
 * @interval_ns: without a plan, from a packet to the next: PAGEWIRE_RTP_INTERVAL_NS_MIN to _MAX;
 *	0 with a plan
 * @start_ns: time of the first packet on CLOCK_MONOTONIC; 0, or what is past: now
 * @clock_rate: with a plan, Hz of its timestamps, from PAGEWIRE_RTP_CLOCK_RATE_MIN; a packet is due
 *	when its timestamp says, or at once if it says earlier than the packet before. 0 without
 * @wake_packets: packets sent together when the first of them is due, 1 to
 *	PAGEWIRE_RTP_WAKE_PACKETS_MAX: fewer wakes of the processor, less even a stream
 * @reserved: 0
 *
 * The times of packets are absolute, so that no lateness adds up. What is overdue is sent at once.
 * When the socket's send buffer or the device's queue is full (EAGAIN, ENOBUFS), or memory is
 * short (ENOMEM), the packet is not given up but tried again a millisecond later; the others keep
 * their times. ENOBUFS is seen only with IP_RECVERR: without, the stack drops the packet and says
 * nothing, as for every sender. Any other error ends the session (PAGEWIRE_RTP_FAILED).
 *
 * A session is woken every PAGEWIRE_RTP_WAKE_NS_MIN at most: packets that become due in between
 * are sent together at the next wake. When the sessions of a user have had their share of work
 * (module parameter work_percent), packets are put off to the next tenth of a second.
 */
struct pagewire_rtp_start {
	struct pagewire_rtp_send send;
	__u64 interval_ns;
	__u64 start_ns;
	__u32 clock_rate;
	__u16 wake_packets;
	__u16 reserved;
};

/**
 * struct pagewire_rtp_seek - where a session goes on
 * @offset: without a plan, of the next packet in the file, within the range of the session
 * @packet: with a plan, index of the next packet; @offset is then 0, and without a plan this is
 * @timestamp: RTP timestamp of the next packet; later ones follow from it as before
 *
 * The sequence goes on. A running session sends the next packet at once; a paused one stays
 * paused; one that ended or failed is paused then.
 */
struct pagewire_rtp_seek {
	__u64 offset;
	__u32 packet;
	__u32 timestamp;
};

/* States of a session. */
#define PAGEWIRE_RTP_NO_SESSION	0
#define PAGEWIRE_RTP_RUNNING	1
#define PAGEWIRE_RTP_PAUSED	2
#define PAGEWIRE_RTP_ENDED	3	/* all is sent */
#define PAGEWIRE_RTP_FAILED	4	/* @error says why; RESUME tries again from there */

/**
 * struct pagewire_rtp_status - how a session is doing
 * @state: PAGEWIRE_RTP_NO_SESSION (all else is 0 then), ...RUNNING, ...
 * @error: errno of the failure, ENODATA when the file ended too early; 0 otherwise
 * @packets: sent since START
 * @bytes: payload in them
 * @offset: of the next packet in the file
 * @late_packets: sent more than PAGEWIRE_RTP_LATE_NS after their time
 * @lateness_ns_max: greatest lateness, as handed to the stack
 * @retries: times that a packet was put off, see struct pagewire_rtp_start
 * @packet: index of the next packet in the plan; 0 without
 * @timestamp: of the next packet
 * @sequence: of the next packet
 * @reserved: 0
 */
struct pagewire_rtp_status {
	__u32 state;
	__s32 error;
	__u64 packets;
	__u64 bytes;
	__u64 offset;
	__u64 late_packets;
	__u64 lateness_ns_max;
	__u64 retries;
	__u32 packet;
	__u32 timestamp;
	__u16 sequence;
	__u16 reserved[3];
};

#define PAGEWIRE_RTP_SEND	_IOWR('P', 0xe0, struct pagewire_rtp_send)

/*
 * Sessions. poll(2) on the device: POLLIN and POLLHUP when the session has ended or failed, and
 * POLLERR when it failed.
 *	START	EBUSY: this descriptor has a session, STOP it first; EDQUOT: the user has as many as
 *		one may have (module parameter sessions_per_user); EUSERS: the machine has
 *		(sessions_total, or as many as workers can wait at a time); else as
 *		PAGEWIRE_RTP_SEND
 *	PAUSE	EINVAL: ended or failed. A paused session stays paused
 *	RESUME	the next packet at once, the others after it; EINVAL: ended. From failed, too
 *	SEEK	EINVAL: not within the session
 *	STOP	drops the session: file, socket and the count for the user
 *	STATUS	also without a session
 * All but START and STATUS: ENOENT without a session.
 */
#define PAGEWIRE_RTP_START	_IOW('P', 0xe1, struct pagewire_rtp_start)
#define PAGEWIRE_RTP_PAUSE	_IO('P', 0xe2)
#define PAGEWIRE_RTP_RESUME	_IO('P', 0xe3)
#define PAGEWIRE_RTP_SEEK	_IOW('P', 0xe4, struct pagewire_rtp_seek)
#define PAGEWIRE_RTP_STOP	_IO('P', 0xe5)
#define PAGEWIRE_RTP_STATUS	_IOR('P', 0xe6, struct pagewire_rtp_status)

#endif
