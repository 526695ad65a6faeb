# SPDX-License-Identifier: MIT OR Apache-2.0
"""RTSP server of GStreamer for one transport stream, and one user.

Arguments: FILE USER PASSWORD basic|digest [PEM]. With a file of certificate and key it serves over
TLS alone. It prints its port.
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import Gio, GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

file, user, password, method, *pem = sys.argv[1:]
Gst.init(None)
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    f'( filesrc location="{file}" ! tsparse set-timestamps=true ! rtpmp2tpay name=pay0 pt=33 )'
)
permissions = GstRtspServer.RTSPPermissions()
for allowed in ("media.factory.access", "media.factory.construct"):
    permissions.add_permission_for_role(user, allowed, True)
factory.set_permissions(permissions)
token = GstRtspServer.RTSPToken()
token.set_string("media.factory.role", user)
auth = GstRtspServer.RTSPAuth()
if method == "basic":
    auth.set_supported_methods(GstRtsp.RTSPAuthMethod.BASIC)
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
else:
    auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
    auth.add_digest(user, password, token)
if pem:
    auth.set_tls_certificate(Gio.TlsCertificate.new_from_file(pem[0]))
server = GstRtspServer.RTSPServer()
server.set_auth(auth)
server.set_address("127.0.0.1")
server.set_service("0")
server.get_mount_points().add_factory("/clip.ts", factory)
server.attach(None)
print(server.get_bound_port(), flush=True)
GLib.MainLoop().run()
