"""Options of object stores: where they are and who we are there, under Hadoop's and Hudi's names.

Give them to ``open_table``, a job or the command line; what is not given is taken from the environment,
as the store's own tools do. A secret may be given as ``env:NAME``: then only the variable's name travels to
other processes.
"""

from __future__ import annotations

from mainstem.options.declaration import Flag, Text, Whole

_READ_BY = "storage.store_options"

# -- S3 ----------------------------------------------------------------------------------------------

S3_ACCESS_KEY = Text(
    "fs.s3a.access.key", aliases=("hoodie.aws.access.key",), like="text or env:NAME", read_by=_READ_BY,
    says="Access key id.",
)  # fmt: skip
S3_SECRET_KEY = Text(
    "fs.s3a.secret.key", aliases=("hoodie.aws.secret.key",), like="text or env:NAME", read_by=_READ_BY,
    says="Secret access key.",
)  # fmt: skip
S3_SESSION_TOKEN = Text(
    "fs.s3a.session.token", aliases=("hoodie.aws.session.token",), like="text or env:NAME",
    read_by=_READ_BY, says="Token of temporary credentials, which are not refreshed.",
)  # fmt: skip
S3_PROVIDER = Text(
    "fs.s3a.aws.credentials.provider", like="Java class", read_by=_READ_BY,
    says="Two kinds count: AnonymousAWSCredentialsProvider (requests are not signed) and"
    " ProfileAWSCredentialsProvider (a profile, whatever the environment says).",
)  # fmt: skip
S3_PROFILE = Text(
    "fs.s3a.auth.profile.name", like="name", read_by=_READ_BY,
    says="Profile in the AWS files of each process; without it `AWS_PROFILE`, then `default`.",
)  # fmt: skip
S3_PROFILE_FILE = Text(
    "fs.s3a.auth.profile.file", like="local path", read_by=_READ_BY,
    says="File with profiles in place of `~/.aws/credentials`.",
)  # fmt: skip
S3_ROLE = Text(
    "fs.s3a.assumed.role.arn", aliases=("hoodie.aws.role.arn",), like="ARN", read_by=_READ_BY,
    says="The role to assume: by a web identity token if there is one, otherwise by boto3.",
)  # fmt: skip
S3_ROLE_SESSION = Text(
    "fs.s3a.assumed.role.session.name", "mainstem", aliases=("hoodie.aws.role.session.name",), like="name",
    read_by=_READ_BY, says="How the session of that role is called.",
)  # fmt: skip
S3_ROLE_EXTERNAL_ID = Text(
    "hoodie.aws.role.external.id", like="text", read_by=_READ_BY,
    says="The id that the role's trust policy asks for.",
)  # fmt: skip
S3_STS_ENDPOINT = Text(
    "fs.s3a.assumed.role.sts.endpoint", aliases=("hoodie.aws.sts.endpoint",), like="URL", read_by=_READ_BY,
    says="Where boto3 assumes the role, if not at AWS's.",
)  # fmt: skip
S3_STS_REGION = Text(
    "fs.s3a.assumed.role.sts.endpoint.region", aliases=("hoodie.aws.sts.region",), like="region",
    read_by=_READ_BY, says="The region of that.",
)  # fmt: skip
S3_ENDPOINT = Text(
    "fs.s3a.endpoint", like="URL or host", read_by=_READ_BY, says="The server, if it is not Amazon's."
)
S3_REGION = Text(
    "fs.s3a.endpoint.region", aliases=("hoodie.aws.region",), like="region", read_by=_READ_BY,
    says="The bucket's region.",
)  # fmt: skip
S3_PATH_STYLE = Flag(
    "fs.s3a.path.style.access", True, read_by=_READ_BY,
    says="Whether the bucket is part of the path, not of the host.",
)  # fmt: skip
S3_TLS = Flag(
    "fs.s3a.connection.ssl.enabled", True, read_by=_READ_BY,
    says="Whether an endpoint without a scheme is asked by https.",
)  # fmt: skip
S3_ENCRYPTION = Text(
    "fs.s3a.encryption.algorithm", aliases=("fs.s3a.server-side-encryption-algorithm",),
    like="AES256, SSE-KMS, DSSE-KMS or SSE-C", read_by=_READ_BY,
    says="How the store encrypts what is written.",
)  # fmt: skip
S3_ENCRYPTION_KEY = Text(
    "fs.s3a.encryption.key", aliases=("fs.s3a.server-side-encryption.key",), like="text or env:NAME",
    read_by=_READ_BY, says="The id of the KMS key; for SSE-C the key, in base64.",
)  # fmt: skip
S3_REQUESTER_PAYS = Flag(
    "fs.s3a.requester.pays.enabled", False, read_by=_READ_BY,
    says="Whether we pay for requests to somebody else's bucket.",
)  # fmt: skip
S3_STORAGE_CLASS = Text(
    "fs.s3a.create.storage.class", like="STANDARD, INTELLIGENT_TIERING, STANDARD_IA, ONEZONE_IA",
    read_by=_READ_BY, says="In which class objects are stored; what is archived (GLACIER) cannot be read.",
)  # fmt: skip
S3_PROXY_HOST = Text("fs.s3a.proxy.host", like="host", read_by=_READ_BY, says="Host of an HTTP proxy.")
S3_PROXY_PORT = Whole(
    "fs.s3a.proxy.port", 443, 1, 65_535, "port", read_by=_READ_BY, says="Port of that proxy."
)
S3_PROXY_USER = Text("fs.s3a.proxy.username", like="text", read_by=_READ_BY, says="Who we are to that proxy.")
S3_PROXY_PASSWORD = Text(
    "fs.s3a.proxy.password", like="text or env:NAME", read_by=_READ_BY, says="The password for it."
)

# -- Google Cloud Storage ----------------------------------------------------------------------------

GCS_KEY_FILE = Text(
    "fs.gs.auth.service.account.json.keyfile", like="local path",
    aliases=("google.cloud.auth.service.account.json.keyfile",), read_by=_READ_BY,
    says="File with the key of a service account, in every process.",
)  # fmt: skip
GCS_ENDPOINT = Text(
    "fs.gs.storage.root.url", like="URL", read_by=_READ_BY, says="The server, if it is not Google's."
)
GCS_PROXY = Text(
    "fs.gs.proxy.address", like="HOST:PORT or env:NAME", read_by=_READ_BY, says="An HTTP proxy."
)

# -- Azure -------------------------------------------------------------------------------------------

AZURE_KEY = Text(
    "fs.azure.account.key", like="text or env:NAME", read_by=_READ_BY,
    says="The account's key; also with `.ACCOUNT.dfs.core.windows.net` behind it, as the next ones.",
)  # fmt: skip
AZURE_SAS = Text(
    "fs.azure.sas.fixed.token", like="text or env:NAME", read_by=_READ_BY,
    says="A shared access signature.",
)  # fmt: skip
AZURE_CLIENT = Text(
    "fs.azure.account.oauth2.client.id", like="id", read_by=_READ_BY, says="Client id of a service principal."
)
AZURE_CLIENT_SECRET = Text(
    "fs.azure.account.oauth2.client.secret", like="text or env:NAME", read_by=_READ_BY,
    says="Its secret.",
)  # fmt: skip
AZURE_LOGIN = Text(
    "fs.azure.account.oauth2.client.endpoint", like="https://HOST/TENANT/oauth2/token", read_by=_READ_BY,
    says="Where it logs in; names the tenant.",
)  # fmt: skip

# -- every store -------------------------------------------------------------------------------------

ENDPOINT = Text(
    "hoodie.mainstem.storage.endpoint", like="URL", read_by=_READ_BY,
    says="The server of any store, where Hadoop's name for it is not given.",
)  # fmt: skip
ANONYMOUS = Flag(
    "hoodie.mainstem.storage.anonymous", False, read_by=_READ_BY, says="Whether requests are not signed."
)
CA_FILE = Text(
    "hoodie.mainstem.storage.ca_file", like="local path", read_by=_READ_BY,
    says="PEM file with certificates to trust besides the system's, in every process; for S3 without it"
    " `AWS_CA_BUNDLE`.",
)  # fmt: skip
PROXY = Text("hoodie.mainstem.storage.proxy", like="URL or env:NAME", read_by=_READ_BY, says="An HTTP proxy.")
TIMEOUT_MS = Whole(
    # A part of a file of 8 MiB, over 1 Mbit/s.
    "hoodie.mainstem.storage.timeout_ms", 60_000, 100, 3_600_000, "milliseconds", read_by=_READ_BY,
    says="How long one try of a request may take, its body included.",
)  # fmt: skip
CONNECT_TIMEOUT_MS = Whole(
    "hoodie.mainstem.storage.connect_timeout_ms", 5_000, 10, 600_000, "milliseconds", read_by=_READ_BY,
    says="How long a connection is waited for.",
)  # fmt: skip
STORE_RETRIES = Whole(
    "hoodie.mainstem.storage.retries", 10, 0, 100, "retries", read_by=_READ_BY,
    says="How often a request is repeated that failed or was throttled, with growing pauses.",
)  # fmt: skip
RETRY_TIMEOUT_MS = Whole(
    "hoodie.mainstem.storage.retry_timeout_ms", 180_000, 0, 3_600_000, "milliseconds", read_by=_READ_BY,
    says="After what time a request is no longer repeated.",
)  # fmt: skip
STORE_WIDTH = Whole(
    "hoodie.mainstem.storage.width", 16, 1, 64, "requests", read_by=_READ_BY,
    says="How many requests a call makes at the same time.",
)  # fmt: skip
KEPT_BYTES = Whole(
    "hoodie.mainstem.storage.memory", 67_108_864, 0, 2**40, "bytes", read_by=_READ_BY,
    says="How much an open table keeps in memory of files that never change: footers, small files.",
)  # fmt: skip
CACHE_BYTES = Whole(
    "hoodie.mainstem.storage.cache", 1_073_741_824, 0, 2**50, "bytes", read_by=_READ_BY,
    says="How much of vector indexes is kept on this machine, for all processes of a user; 0: nothing.",
)  # fmt: skip
CACHE_FOLDER = Text(
    "hoodie.mainstem.storage.cache_folder", like="local path", read_by=_READ_BY,
    says="Where it is kept; without it, in a folder for temporary files.",
)  # fmt: skip

#: never shown, and best given as ``env:NAME``
SECRETS = (
    S3_ACCESS_KEY, S3_SECRET_KEY, S3_SESSION_TOKEN, S3_ENCRYPTION_KEY, AZURE_KEY, AZURE_SAS,
    AZURE_CLIENT_SECRET, PROXY, GCS_PROXY, S3_PROXY_PASSWORD,
)  # fmt: skip
#: say who we are
WHO = (
    ANONYMOUS, S3_ACCESS_KEY, S3_SECRET_KEY, S3_SESSION_TOKEN, S3_PROVIDER, S3_PROFILE, S3_PROFILE_FILE,
    S3_ROLE, S3_ROLE_SESSION, S3_ROLE_EXTERNAL_ID, GCS_KEY_FILE, AZURE_KEY, AZURE_SAS, AZURE_CLIENT,
    AZURE_CLIENT_SECRET, AZURE_LOGIN,
)  # fmt: skip
#: may end in the name of an account
PER_ACCOUNT = (AZURE_KEY, AZURE_SAS, AZURE_CLIENT, AZURE_CLIENT_SECRET, AZURE_LOGIN)
#: options of Hadoop's file systems, known here or not: they are no properties of a table
PREFIXES = ("fs.s3a.", "fs.s3.", "fs.s3n.", "fs.gs.", "google.cloud.", "fs.azure.", "fs.abfs.", "fs.abfss.",
            "hoodie.aws.", "hoodie.mainstem.storage.")  # fmt: skip
PER_BUCKET = "fs.s3a.bucket."
S3A = "fs.s3a."
