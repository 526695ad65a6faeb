// SPDX-License-Identifier: GPL-2.0
/*
 * Handing a batch to the socket, kernels 6.5 and newer: sendmsg with MSG_SPLICE_PAGES.
 *
 * One sendmsg for each batch, with the pages as fragments of the sk_buff: the stack takes a
 * reference of its own to each (skb_append_pagefrags()), so the run's and its source's may go as
 * soon as the call returns. A device without scatter and gather, or a cork with something else
 * in it, makes the stack copy; that is its business and needs nothing here. Lone datagrams whose
 * pieces meet at an odd byte are copied on purpose (pwr_meets_oddly()).
 *
 * Security modules are asked at the first send of a run, then not again, as sendmmsg(2) does with
 * one destination: the socket is connected and cannot be another one within the call. MSG_MORE is
 * not used: it costs checksums in software.
 *
 * Sources: net/ipv4/udp.c, net/socket.c; Documentation/networking/segmentation-offloads.rst.
 */
#include <linux/kernel.h>
#include <linux/socket.h>
#include <linux/uio.h>
#include <linux/udp.h>
#include <net/sock.h>

#include "engine.h"

const bool pwr_handover_segments = true;

static int pwr_handover_once(struct pwr_run *run, unsigned int flags)
{
	union {
		struct cmsghdr header;
		u8 room[CMSG_SPACE(sizeof(u16))];
	} control;
	struct msghdr message = { .msg_flags = run->message_flags | flags };
	int sent;

	if (run->batch_packets > 1) {
		control.header.cmsg_level = SOL_UDP;
		control.header.cmsg_type = UDP_SEGMENT;
		control.header.cmsg_len = CMSG_LEN(sizeof(u16));
		*(u16 *)CMSG_DATA(&control.header) = run->segment_bytes;
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	iov_iter_bvec(&message.msg_iter, ITER_SOURCE, run->piece, run->pieces, run->batch_bytes);
	if (!run->asked) {
		sent = sock_sendmsg(run->socket, &message);
		run->asked = sent >= 0;
	} else {
		sent = READ_ONCE(run->socket->ops)->sendmsg(run->socket, &message,
							    run->batch_bytes);
	}
	return sent < 0 ? sent : 0;
}

/*
 * Whether a lone datagram's pieces meet at an odd byte. From 6.5 to at least 6.18 (mended in some
 * stable series) the stack sums such a datagram wrongly where the device does not sum
 * (skb_splice_from_iter() adds each piece at the wrong parity); a batch is summed when it is cut.
 */
static bool pwr_meets_oddly(const struct pwr_run *run)
{
	unsigned int index;

	for (index = 0; index + 1 < run->pieces; index++)
		if (run->piece[index].bv_len & 1)
			return run->batch_packets == 1;
	return false;
}

/**
 * pwr_handover() - hand the batch to the socket
 * @run: with at least one whole packet and none begun
 *
 * Return: 0, or the socket's error.
 */
int pwr_handover(struct pwr_run *run)
{
	bool appends = READ_ONCE(udp_sk(run->socket->sk)->pending);
	int error = pwr_handover_once(run, pwr_meets_oddly(run) ? 0 : MSG_SPLICE_PAGES);

	/*
	 * More pieces than an sk_buff takes (net.core.max_skb_frags may be set lower than what
	 * was built in) are EMSGSIZE, as is a datagram too large for the path: the second try
	 * copies, and tells which it was. Not so in a cork with something in it, which was thrown
	 * away with the first try (udp_flush_pending_frames()): another would be a datagram that
	 * lacks its beginning.
	 */
	if (unlikely(error == -EMSGSIZE && !appends))
		error = pwr_handover_once(run, 0);
	return error;
}
