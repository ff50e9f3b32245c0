"""astrid:http: requests to the hosts that a manifest names.

`interfaces` is what guests call, `fetching` one request with its redirects, `wire` one hop of it, `exchanges` and `bodies` what
goes on between a guest's calls; `requests` and `urls` check what a guest says, `decoding` and `integrity` what a server sends.
The client library is imported for the first request.
"""

from astrid_host.hostcalls.http.interfaces import Http, Http10, Http11

__all__ = ["Http", "Http10", "Http11"]
