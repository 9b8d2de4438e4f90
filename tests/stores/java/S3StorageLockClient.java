package org.apache.hudi.aws.transaction.lock;

import java.util.Properties;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * Stands in for the class of this name in hudi-aws, which is in no registry: the same requests, the same
 * meaning of their answers. Everything else of the lock is Hudi's own. The environment says where the store is.
 */
public class S3StorageLockClient implements StorageLockClient {
  private final S3Client client = S3Client.builder().forcePathStyle(true).build();
  private final String bucket;
  private final String key;

  public S3StorageLockClient(String owner, String uri, Properties properties) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(uri);
    bucket = place.getLeft();
    key = place.getRight();
  }

  @Override
  public Pair<LockGetResult, Option<StorageLockFile>> readCurrentLockFile() {
    try (var found = client.getObject(request -> request.bucket(bucket).key(key))) {
      return Pair.of(LockGetResult.SUCCESS,
          Option.of(StorageLockFile.createFromStream(found, found.response().eTag())));
    } catch (S3Exception error) {
      boolean none = error.statusCode() == 404;
      return Pair.of(none ? LockGetResult.NOT_EXISTS : LockGetResult.UNKNOWN_ERROR, Option.empty());
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  @Override
  public Pair<LockUpsertResult, Option<StorageLockFile>> tryUpsertLockFile(
      StorageLockData data, Option<StorageLockFile> previous) {
    PutObjectRequest.Builder put = PutObjectRequest.builder().bucket(bucket).key(key);
    put = previous.isPresent() ? put.ifMatch(previous.get().getVersionId()) : put.ifNoneMatch("*");
    try {
      byte[] content = StorageLockFile.toByteArray(data);
      String tag = client.putObject(put.build(), RequestBody.fromBytes(content)).eTag();
      return Pair.of(LockUpsertResult.SUCCESS, Option.of(new StorageLockFile(data, tag)));
    } catch (S3Exception error) {
      boolean others = error.statusCode() == 412;
      return Pair.of(others ? LockUpsertResult.ACQUIRED_BY_OTHERS : LockUpsertResult.UNKNOWN_ERROR,
          Option.empty());
    }
  }

  @Override
  public Option<String> readObject(String path, boolean lookFirst) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(path);
    try {
      return Option.of(client.getObjectAsBytes(
          request -> request.bucket(place.getLeft()).key(place.getRight())).asUtf8String());
    } catch (S3Exception error) {
      return Option.empty();
    }
  }

  @Override
  public boolean writeObject(String path, String content) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(path);
    client.putObject(request -> request.bucket(place.getLeft()).key(place.getRight()),
        RequestBody.fromString(content));
    return true;
  }

  @Override
  public void close() {
    client.close();
  }
}
