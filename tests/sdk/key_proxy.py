"""A proxy on loopback that adds the key of the gateway, for programs that cannot send a header. Answers are passed on as
they arrive, because they may be streams."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"}


class KeyProxy:
    """Serves what is below `url`, with the key. `url` of the proxy is the address for the program."""

    def __init__(self, url, key):
        target = urlsplit(url)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else None
                headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
                connection = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
                try:
                    connection.request(self.command, target.path, body, headers | {"X-Gateway-Key": key})
                    self.answer(connection.getresponse())
                finally:
                    connection.close()

            def answer(self, response):
                self.close_connection = True
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                while chunk := response.read1(65536):
                    self.wfile.write(chunk)
                    self.wfile.flush()

            do_GET = do_POST = do_DELETE = forward

            def log_message(self, *_arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}{target.path}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_reason):
        self.server.shutdown()
        self.server.server_close()
