BEGIN TRANSACTION;
CREATE TABLE durations (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  sketch TEXT NOT NULL,
  PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  job_id TEXT NOT NULL,
  type TEXT NOT NULL,
  at REAL NOT NULL,
  job TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,'-','01JGGVSE2FRB36SGZDMAQR5D3W','status',1.73573280366337442393e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.6631904}');
INSERT INTO "events" VALUES(2,'-','01JGGVSE3FXHG6559YP4ZE8FSC','status',1.73573280369534707068e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.6951575}');
INSERT INTO "events" VALUES(3,'-','01JGGVSE3HF2TSKEK5GBYT3QBB','status',1.73573280369793128967e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.697775}');
INSERT INTO "events" VALUES(4,'-','01JGGVSE3K3FY7R6R6578E8A84','status',1.73573280369976258282e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.6996732}');
INSERT INTO "events" VALUES(5,'-','01JGGVSE3N0MFT08F8CQR8YFA3','status',1.73573280370214843744e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":1735732803.7018964}');
INSERT INTO "events" VALUES(6,'-','01JGGVSE2FRB36SGZDMAQR5D3W','status',1.7357328042718098164e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:16953","waited":0.6086194515228271}');
INSERT INTO "events" VALUES(7,'-','01JGGVSE3FXHG6559YP4ZE8FSC','status',1.73573280428562927253e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:16953","waited":0.5904717445373535}');
INSERT INTO "events" VALUES(8,'-','01JGGVSE2FRB36SGZDMAQR5D3W','step',1.73573280473010039333e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:16953","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSE2FRB36SGZDMAQR5D3W','step',1.73573280474494957923e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:16953","step":{"name":"first","status":"DONE"},"seconds":0.014849185943603516}');
INSERT INTO "events" VALUES(10,'-','01JGGVSE3FXHG6559YP4ZE8FSC','status',1.73573280474494957923e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"2d74815f969c937e9bc1519fff3f988c","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.4593203067779541}');
INSERT INTO "events" VALUES(11,'-','01JGGVSE3HF2TSKEK5GBYT3QBB','status',1.73573280474494957923e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:16953","waited":1.0471746921539307}');
INSERT INTO "events" VALUES(12,'-','01JGGVSE2FRB36SGZDMAQR5D3W','step',1735732804.7597,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:16953","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(13,'-','01JGGVSE2FRB36SGZDMAQR5D3W','step',1735732804.7597,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:16953","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(14,'-','01JGGVSE2FRB36SGZDMAQR5D3W','status',1.73573280476391077044e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.49210095405578613}');
INSERT INTO "events" VALUES(15,'-','01JGGVSE3K3FY7R6R6578E8A84','status',1.73573280476391077044e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:16953","waited":1.0642375946044922}');
INSERT INTO "events" VALUES(16,'-','01JGGVSE3K3FY7R6R6578E8A84','status',1.73573280477177333824e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"8be6700214dfdca776fb32b43fd8d53b"},"seconds":0.007862567901611328}');
INSERT INTO "events" VALUES(17,'-','01JGGVSE3N0MFT08F8CQR8YFA3','status',1.73573280477177333824e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:16953","waited":1.0698769092559814}');
INSERT INTO "events" VALUES(18,'-','01JGGVSE3N0MFT08F8CQR8YFA3','step',1.73573280478212523458e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:16953","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(19,'-','01JGGVSE3N0MFT08F8CQR8YFA3','step',1.73573280478212523458e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:16953","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(20,'-','01JGGVSE3N0MFT08F8CQR8YFA3','step',1.73573280478586530685e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:16953","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSE3N0MFT08F8CQR8YFA3','step',1.73573280478586530685e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:16953","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(22,'-','01JGGVSE3HF2TSKEK5GBYT3QBB','status',1.73573280479114770884e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.046198129653930664}');
INSERT INTO "events" VALUES(23,'-','01JGGVSE3N0MFT08F8CQR8YFA3','status',1.73573280480468106266e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"seconds":0.032907724380493164}');
INSERT INTO "events" VALUES(24,'-','01JGGVSF6T50V19NMZRVMBXBCF','status',1.73573280482706809044e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.8268356}');
INSERT INTO "events" VALUES(25,'-','01JGGVSF6T50V19NMZRVMBXBCF','status',1.73573280482706809044e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:16953","waited":0.00023245811462402344}');
INSERT INTO "events" VALUES(26,'-','01JGGVSF6T50V19NMZRVMBXBCF','status',1.73573280484070420265e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732825.898212,"nextAttemptAt":1735732825.898212,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"0406d859adbc07069f0d22f063522727"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSF7S3D2WR59CZVTEF3AH','status',1.73573280485760402672e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSF96W2729H8ZSBDD27Z8','status',1.73573280490483784679e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSF96W2729H8ZSBDD27Z8','status',1.73573280490848350521e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','','queue',1.7357328049127240181e+09,'{"queue":"other","paused":true}');
INSERT INTO "events" VALUES(31,'-','01JGGVSF9PW8R7YT714V9A6YMG','status',1.73573280491858935358e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.9183419}');
INSERT INTO "events" VALUES(32,'-','01JGGVSF9SPM88E9NB3ZQFY9H8','status',1.7357328049227206707e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.9215636}');
INSERT INTO "events" VALUES(33,'-','01JGGVSF9SPM88E9NB3ZQFY9H8','status',1.7357328049227206707e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:16953","waited":0.0011570453643798828}');
INSERT INTO "events" VALUES(34,'-','01JGGVSF9Z47YF7KFNMC8WS42C','status',1.73573280492970800402e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.9281065}');
INSERT INTO "events" VALUES(35,'-','01JGGVSF9SPM88E9NB3ZQFY9H8','status',1.73573280492970800402e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:16953"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSF9Z47YF7KFNMC8WS42C','status',1.73573280492970800402e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:16953","waited":0.0016014575958251953}');
INSERT INTO "events" VALUES(37,'-','01JGGVSF9Z90QRQPXAHWR3JWCY','status',1.73573280494052290911e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.938612}');
INSERT INTO "events" VALUES(38,'-','01JGGVSF9SPM88E9NB3ZQFY9H8','status',1.73573280494052290911e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:16953"}');
INSERT INTO "events" VALUES(39,'-','01JGGVSF9Z47YF7KFNMC8WS42C','step',1.73573280495494627947e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:16953","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSF9Z47YF7KFNMC8WS42C','step',1.73573280495494627947e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:16953","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(41,'-','01JGGVSF9SPM88E9NB3ZQFY9H8','status',1.73573280495494627947e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(42,'-','01JGGVSF9Z90QRQPXAHWR3JWCY','status',1.73573280495494627947e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:16953","waited":0.01633429527282715}');
INSERT INTO "events" VALUES(43,'-','01JGGVSF9Z90QRQPXAHWR3JWCY','step',1.7357328049660930634e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:16953","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSF9Z90QRQPXAHWR3JWCY','step',1.7357328049660930634e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:16953","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(45,'-','01JGGVSFBPAM4FA3XZ7X4BQEAF','status',1.73573280498307347301e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.9829051}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSE2FRB36SGZDMAQR5D3W','-','{"number": 1}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSE3FXHG6559YP4ZE8FSC','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSE3HF2TSKEK5GBYT3QBB','-','{"size": 10}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSE3K3FY7R6R6578E8A84','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSE3N0MFT08F8CQR8YFA3','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSF6T50V19NMZRVMBXBCF','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSF7S3D2WR59CZVTEF3AH','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSF96W2729H8ZSBDD27Z8','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSF9PW8R7YT714V9A6YMG','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSF9SPM88E9NB3ZQFY9H8','-','{"number": 10, "seconds": 60}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSF9Z47YF7KFNMC8WS42C','-','{"number":10,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSF9Z90QRQPXAHWR3JWCY','-','{"number":11,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSFBPAM4FA3XZ7X4BQEAF','-','{"number": 3}',NULL);
CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  version INTEGER NOT NULL,
  run INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  labels TEXT,
  run_at REAL,
  due REAL,
  deadline REAL,
  attempt INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  owner TEXT,
  lease_until REAL,
  started_at REAL,
  next_attempt_at REAL,
  cancel_asked_at REAL,
  finished_at REAL,
  keep REAL,
  expires_at REAL,
  result TEXT,
  result_file TEXT,
  error TEXT,
  progress TEXT,
  steps TEXT,
  files TEXT,
  parent TEXT,
  children TEXT,
  waiting_for TEXT,
  trace_id TEXT,
  -- 1: due and waiting for a worker; claims read only these rows
  ready INTEGER NOT NULL DEFAULT 0
, lease_seconds REAL, loss_record TEXT, overdue_at REAL);
INSERT INTO "jobs" VALUES(1,'01JGGVSE2FRB36SGZDMAQR5D3W','work','default',1.73573280366319036482e+09,1.73573280476391077044e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.7357328042718098164e+09,NULL,NULL,1.73573280476391077044e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732804.7301004,"finished_at":1735732804.7449496},{"name":"second","status":"DONE","started_at":1735732804.7597,"finished_at":1735732804.7597}]',NULL,NULL,NULL,NULL,'8412c8ac35f56e97ddbaf48d2c36ff04',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSE3FXHG6559YP4ZE8FSC','half','default',1.73573280369515752785e+09,1.73573280474494957923e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280428562927253e+09,NULL,NULL,1.73573280474494957923e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"2d74815f969c937e9bc1519fff3f988c","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'2d74815f969c937e9bc1519fff3f988c',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSE3HF2TSKEK5GBYT3QBB','paint','default',1.73573280369777488713e+09,1.73573280479114770884e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280474494957923e+09,NULL,NULL,1.73573280479114770884e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSE3HF2TSKEK5GBYT3QBB/1.bd208d41/picture.bin"}]',NULL,NULL,NULL,'747643159999d243a09eedca534651f6',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSE3K3FY7R6R6578E8A84','fail','default',1.73573280369967317582e+09,1.73573280477177333824e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280476391077044e+09,NULL,NULL,1.73573280477177333824e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"8be6700214dfdca776fb32b43fd8d53b"}',NULL,NULL,NULL,NULL,NULL,NULL,'8be6700214dfdca776fb32b43fd8d53b',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSE3N0MFT08F8CQR8YFA3','work','default',1.73573280370189642909e+09,1.73573280480468106266e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280477177333824e+09,NULL,NULL,1.73573280480468106266e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732804.7821252,"finished_at":1735732804.7821252},{"name":"second","status":"DONE","started_at":1735732804.7858653,"finished_at":1735732804.7858653}]',NULL,NULL,NULL,NULL,'32f2057934386c0f0a6f1861f683f444',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSF6T50V19NMZRVMBXBCF','heal','default',1.73573280482683563229e+09,1.73573280484070420265e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573282589821195598e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280482706809044e+09,1.73573282589821195598e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"0406d859adbc07069f0d22f063522727"}',NULL,NULL,NULL,NULL,NULL,NULL,'0406d859adbc07069f0d22f063522727',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSF7S3D2WR59CZVTEF3AH','work','default',1.73573280485737204553e+09,1.73573280485737204553e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'80c5655aafb05bd8da44ffb97b1967bd',0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSF96W2729H8ZSBDD27Z8','work','default',1.73573280490258431436e+09,1.73573280490848350521e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280490848350521e+09,1.73573280490848350521e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'ca23d84d320135bc9ac63138dc241e51',0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSF9PW8R7YT714V9A6YMG','rest','other',1.73573280491834187506e+09,1.73573280491834187506e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280491834187506e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'1a8b70dab4108fda5bca73e8d409b961',1,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSF9SPM88E9NB3ZQFY9H8','family','default',1.73573280492156362532e+09,1.73573280495494627947e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.7357328049227206707e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSF9Z47YF7KFNMC8WS42C","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSF9Z90QRQPXAHWR3JWCY","kind":"work","key":"work#2","status":null}]','["01JGGVSF9Z47YF7KFNMC8WS42C","01JGGVSF9Z90QRQPXAHWR3JWCY"]','f7d3805586874455fe74c465ceba318d',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSF9Z47YF7KFNMC8WS42C','work','default',1.73573280492810654634e+09,1.73573280495494627947e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:16953',1.73573283492970800397e+09,1.73573280492970800402e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732804.9549463,"finished_at":1735732804.9549463}]',NULL,'01JGGVSF9SPM88E9NB3ZQFY9H8',NULL,NULL,'f7d3805586874455fe74c465ceba318d',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSF9Z90QRQPXAHWR3JWCY','work','default',1.73573280493861198427e+09,1.7357328049660930634e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:16953',1.73573283495494627955e+09,1.73573280495494627947e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732804.966093,"finished_at":1735732804.966093}]',NULL,'01JGGVSF9SPM88E9NB3ZQFY9H8',NULL,NULL,'f7d3805586874455fe74c465ceba318d',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSFBPAM4FA3XZ7X4BQEAF','work','default',1.73573280498290514941e+09,1.73573280498290514941e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280498290514941e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'87578c673ad5b1ddd68c667cfbb41be1',1,NULL,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSE3N0MFT08F8CQR8YFA3',1.73573280370214843744e+09);
CREATE TABLE log_state (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "log_state" VALUES('epoch','e606a961');
INSERT INTO "log_state" VALUES('floor','0');
CREATE TABLE queues (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
INSERT INTO "queues" VALUES('-','other',1);
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  result TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES('01JGGVSE2FRB36SGZDMAQR5D3W','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280474494957923e+09);
INSERT INTO "steps" VALUES('01JGGVSE2FRB36SGZDMAQR5D3W','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1735732804.7597);
INSERT INTO "steps" VALUES('01JGGVSE3N0MFT08F8CQR8YFA3','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280478212523458e+09);
INSERT INTO "steps" VALUES('01JGGVSE3N0MFT08F8CQR8YFA3','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280478586530685e+09);
INSERT INTO "steps" VALUES('01JGGVSF9Z47YF7KFNMC8WS42C','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280495494627947e+09);
INSERT INTO "steps" VALUES('01JGGVSF9Z90QRQPXAHWR3JWCY','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.7357328049660930634e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('97de2bf39957cabae149e8d9661ba196');
CREATE TABLE tombstones (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE upload_uses (
  upload_id TEXT NOT NULL,
  job_id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  PRIMARY KEY (upload_id, job_id)
) WITHOUT ROWID;
CREATE TABLE uploads (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  replica TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  updated_at REAL NOT NULL,
  expires_at REAL,
  record TEXT NOT NULL,
  -- the job that it creates; a separate column, because it is written once
  submission TEXT
, reserved INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "uploads" VALUES('01JGGVSE15RMSX8X8DZ0R1HH7G','-','DONE','host',10,1.73573280363280391686e+09,4.73573280363280391678e+09,'{"id":"01JGGVSE15RMSX8X8DZ0R1HH7G","way":"tus","name":"file","created_at":1735732803.6214147,"updated_at":1735732803.632804,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732803.632804,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSE15RMSX8X8DZ0R1HH7G/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSE1Y160HYA2WX6RWF24M','-','UPLOADING','host',10,1.73573280365426468852e+09,4.73573280365413188915e+09,'{"id":"01JGGVSE1Y160HYA2WX6RWF24M","way":"tus","name":"file","created_at":1735732803.6468675,"updated_at":1735732803.6542647,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732803.654132,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,10);
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);
CREATE INDEX jobs_claim ON jobs (queue, kind, priority DESC, seq) WHERE ready = 1;
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0 AND due IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX jobs_status ON jobs (status, id) WHERE status <> 'DONE';
CREATE INDEX jobs_kind ON jobs (kind, id);
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';
CREATE INDEX upload_uses_job ON upload_uses (job_id);
CREATE INDEX events_job ON events (tenant, job_id, id);
CREATE INDEX events_tenant ON events (tenant, id);
CREATE INDEX events_kept ON events (at) WHERE type IN ('deleted', 'queue');
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',45);
COMMIT;
