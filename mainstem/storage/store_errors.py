"""What an object store said, in one line without signatures, and what to do about it."""

from __future__ import annotations

import re

from mainstem.options import stores

_CODE = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>", re.DOTALL)
_REGION = re.compile(r"<Region>([\w-]{1,40})</Region>")
_XML = re.compile(r"<(\?xml|Error>).*", re.DOTALL)
# obstore names the key, which the caller names too.
_PRIVILEGES = re.compile(r"The operation lacked the necessary privileges to complete for path [^:]*: ")
_QUERY = re.compile(r"\?[^\s\"'<>]+")  # signatures of requests are there
_SAID_BYTES_MAX = 500

#: verb -> what S3, Google Cloud Storage and Azure call the permission
_PERMISSIONS = {
    "GET": "s3:GetObject, storage.objects.get, or Storage Blob Data Reader",
    "HEAD": "s3:GetObject, storage.objects.get, or Storage Blob Data Reader",
    "LIST": "s3:ListBucket, storage.objects.list, or Storage Blob Data Reader",
    "PUT": "s3:PutObject, storage.objects.create and .delete, or Storage Blob Data Contributor",
    "DELETE": "s3:DeleteObject, storage.objects.delete, or Storage Blob Data Contributor",
}
_KEY_ID = f"the credentials are not those of an account here: check {stores.S3_ACCESS_KEY} and the endpoint"
_NO_REASON = "a HEAD, it gives no reason"
#: what the text holds -> what to do
_ADVICE = (
    (r"/latest/(api/token|meta-data)|/computeMetadata/|/metadata/identity/", "no credentials were"
     " found, by no option, variable, profile or role: give some (docs/stores.md), or"
     f" {stores.ANONYMOUS}=true for a public bucket"),
    (r"Server failed to authenticate the request", f"the account's key or signature is wrong or has expired:"
     f" check {stores.AZURE_KEY}, {stores.AZURE_SAS} and the account's name"),
    (r"ExpiredToken|TokenRefreshRequired|RequestExpired|ExpiredAuthenticationToken|AuthenticationFailed",
     "the credentials have expired or are wrong: renew them where they come from and go on; a session token"
     " that is given as an option or a variable stays as it is, a profile and a role are renewed"),
    (r"RequestTimeTooSkewed|RequestTimeTooFar",
     "this machine's clock is more than 15 minutes off the store's: set it, best by NTP"),
    (r"AuthorizationHeaderMalformed|PermanentRedirect|TemporaryRedirect|IllegalLocationConstraint"
     r"|redirect without LOCATION", f"the bucket is in another region: give it as {stores.S3_REGION}"),
    (r"InvalidAccessKeyId|InvalidClientTokenId|invalid_grant", _KEY_ID),
    (r"SignatureDoesNotMatch", f"the secret is wrong: check {stores.S3_SECRET_KEY}"),
    (r"[Oo]bject [Ll]ock|WORM|retention|BlobImmutable|UnderLegalHold", "the bucket or container keeps"
     " objects by a lock (Object Lock, a retention policy, immutability): no table can be written there,"
     " take another"),
    (r"KMS|kms:", "the key that encrypts the bucket is refused: the role needs kms:GenerateDataKey and"
     " kms:Decrypt"),
    (r"InvalidRequest.*[Ee]ncryption|SSECustomer", f"the object has another encryption: check"
     f" {stores.S3_ENCRYPTION}"),
    (r"InvalidContentType", "the server does not speak TLS: give the endpoint with http://, or"
     f" {stores.S3_TLS}=false"),
    (r"kind: Timeout|TimedOut", "the server did not answer in time: look whether it is reached and not"
     f" overloaded, or give it more ({stores.TIMEOUT_MS}, {stores.CONNECT_TIMEOUT_MS})"),
    (r"ConnectionRefused|dns error|tcp connect error", "nobody answers at that address: check the endpoint,"
     " the network and the proxy"),
    (r"invalid peer certificate|UnknownIssuer|certificate", f"the server's certificate is not trusted: give"
     f" the file of its authority as {stores.CA_FILE}"),
)  # fmt: skip


def said(error: BaseException, method: str) -> str:
    """What the store said to a request with this verb, and what to do."""
    whole = str(error).partition("\n\nDebug source")[0]
    answer = _CODE.search(whole)
    line = " ".join(_QUERY.sub("?...", _PRIVILEGES.sub("", _XML.sub("", whole))).split())
    if answer is not None:
        line = f"{line} {answer.group(1)}: {' '.join(answer.group(2).split())}"
    do = _advice(f"{whole}\n{error}", method)
    region = _REGION.search(whole)
    if region is not None:
        do = f"{do} ({region.group(1)})" if do else do
    return line[:_SAID_BYTES_MAX] + (f". What to do: {do}" if do else "")


def _advice(text: str, method: str) -> str:
    found = next((do for pattern, do in _ADVICE if re.search(pattern, text)), "")
    if method == "HEAD" and "400 Bad Request" in text:
        return f"look at what the store says to another request: to this one, {_NO_REASON}"
    if found or not ("403 Forbidden" in text or "AccessDenied" in text or "401 Unauthorized" in text):
        return found
    more = " (S3 says the same of a missing object if s3:ListBucket is not granted)"
    if method == "HEAD":
        more += f", or look at what the store says to another request: to this one, {_NO_REASON}"
    if method == "DELETE":
        more += ", or free the bucket of Object Lock"
    return f"grant {_PERMISSIONS[method]}{more if method in ('GET', 'HEAD', 'DELETE') else ''}"
