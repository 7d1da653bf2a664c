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
INSERT INTO "events" VALUES(1,'-','01JGGVSEBH9FSKBFJ72S08TMA3','status',1.73573280395329594604e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.9531436}');
INSERT INTO "events" VALUES(2,'-','01JGGVSEC01Q4AN2AVP0MAPZ2C','status',1.73573280396859908102e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.9683995}');
INSERT INTO "events" VALUES(3,'-','01JGGVSEC273W4Q81HY30GRJCZ','status',1.73573280397087502478e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.9707813}');
INSERT INTO "events" VALUES(4,'-','01JGGVSEC8NDKRQJ13XMMTG84M','status',1.73573280397628188138e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732803.9761112}');
INSERT INTO "events" VALUES(5,'-','01JGGVSEC92MEF8HFMBQYTH090','status',1.73573280397819471355e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":1735732803.9779558}');
INSERT INTO "events" VALUES(6,'-','01JGGVSEBH9FSKBFJ72S08TMA3','status',1.73573280412154340741e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15952","waited":0.16839981079101562}');
INSERT INTO "events" VALUES(7,'-','01JGGVSEC01Q4AN2AVP0MAPZ2C','status',1.73573280427952599523e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15952","waited":0.3111264705657959}');
INSERT INTO "events" VALUES(8,'-','01JGGVSEBH9FSKBFJ72S08TMA3','step',1.73573280429633140559e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:15952","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSEBH9FSKBFJ72S08TMA3','step',1.73573280430027055741e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:15952","step":{"name":"first","status":"DONE"},"seconds":0.003939151763916016}');
INSERT INTO "events" VALUES(10,'-','01JGGVSEBH9FSKBFJ72S08TMA3','step',1.73573280431419086451e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:15952","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSEBH9FSKBFJ72S08TMA3','step',1.73573280431419086451e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:15952","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(12,'-','01JGGVSEBH9FSKBFJ72S08TMA3','status',1.73573280432049441334e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.19895100593566895}');
INSERT INTO "events" VALUES(13,'-','01JGGVSEC273W4Q81HY30GRJCZ','status',1.73573280432049441334e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15952","waited":0.3497130870819092}');
INSERT INTO "events" VALUES(14,'-','01JGGVSEC273W4Q81HY30GRJCZ','status',1.73573280434329533573e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.022800922393798828}');
INSERT INTO "events" VALUES(15,'-','01JGGVSEC8NDKRQJ13XMMTG84M','status',1.73573280434329533573e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15952","waited":0.3671841621398926}');
INSERT INTO "events" VALUES(16,'-','01JGGVSEC8NDKRQJ13XMMTG84M','status',1.73573280434805250161e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"58f3b3ddd2f7152e1884f0ddf154e076"},"seconds":0.0047571659088134766}');
INSERT INTO "events" VALUES(17,'-','01JGGVSEC92MEF8HFMBQYTH090','status',1.73573280434805250161e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15952","waited":0.37009668350219727}');
INSERT INTO "events" VALUES(18,'-','01JGGVSEC92MEF8HFMBQYTH090','step',1.73573280435721802707e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15952","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(19,'-','01JGGVSEC92MEF8HFMBQYTH090','step',1.73573280435721802707e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15952","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(20,'-','01JGGVSEC92MEF8HFMBQYTH090','step',1.73573280436240291596e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15952","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSEC92MEF8HFMBQYTH090','step',1.73573280436240291596e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:15952","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(22,'-','01JGGVSEC92MEF8HFMBQYTH090','status',1.73573280436818575857e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"seconds":0.020133256912231445}');
INSERT INTO "events" VALUES(23,'-','01JGGVSEC01Q4AN2AVP0MAPZ2C','status',1.73573280459298014645e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"ae2108a974b6dec4820a2979f86cc612","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.31345415115356445}');
INSERT INTO "events" VALUES(24,'-','01JGGVSF04W7PK11VK666Z015Z','status',1.73573280461529254911e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.6120584}');
INSERT INTO "events" VALUES(25,'-','01JGGVSF04W7PK11VK666Z015Z','status',1.73573280461529254911e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15952","waited":0.0032341480255126953}');
INSERT INTO "events" VALUES(26,'-','01JGGVSF04W7PK11VK666Z015Z','status',1.73573280462320208555e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735733255.7266681,"nextAttemptAt":1735733255.7266681,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"8842fc74103bb9d6b0163952cdb7d821"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSF0X05YZ4MAFXABCF106','status',1.73573280463760280605e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSF18CS77SR0CR9PAKN0N','status',1.73573280464869856838e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSF18CS77SR0CR9PAKN0N','status',1.73573280466124534602e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','','queue',1.7357328046736152172e+09,'{"queue":"other","paused":true}');
INSERT INTO "events" VALUES(31,'-','01JGGVSF2H8JR76TTPTYEHCV3G','status',1.7357328046904284954e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.689094}');
INSERT INTO "events" VALUES(32,'-','01JGGVSF34PQQTEFFSA7SKHH24','status',1.73573280470840573316e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.7082114}');
INSERT INTO "events" VALUES(33,'-','01JGGVSF34PQQTEFFSA7SKHH24','status',1.73573280470840573316e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15952","waited":0.00019431114196777344}');
INSERT INTO "events" VALUES(34,'-','01JGGVSF370359SFYJD9JQKEGS','status',1735732804.71438,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.7142324}');
INSERT INTO "events" VALUES(35,'-','01JGGVSF34PQQTEFFSA7SKHH24','status',1735732804.71438,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:15952"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSF370359SFYJD9JQKEGS','status',1735732804.71438,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15952","waited":0.0001475811004638672}');
INSERT INTO "events" VALUES(37,'-','01JGGVSF370359SFYJD9JQKEGS','step',1.73573280471636891362e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:15952","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(38,'-','01JGGVSF370359SFYJD9JQKEGS','step',1.73573280471636891362e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:15952","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(39,'-','01JGGVSF3AJEVF0REAHM5XKGZ9','status',1.73573280471636891362e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.715911}');
INSERT INTO "events" VALUES(40,'-','01JGGVSF34PQQTEFFSA7SKHH24','status',1.73573280471636891362e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:15952"}');
INSERT INTO "events" VALUES(41,'-','01JGGVSF34PQQTEFFSA7SKHH24','status',1.73573280471789383886e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(42,'-','01JGGVSF3AJEVF0REAHM5XKGZ9','status',1.73573280471789383886e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:15952","waited":0.0019829273223876953}');
INSERT INTO "events" VALUES(43,'-','01JGGVSF3AJEVF0REAHM5XKGZ9','step',1.73573280471979141236e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:15952","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSF3AJEVF0REAHM5XKGZ9','step',1.73573280471979141236e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:15952","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(45,'-','01JGGVSF3RZ1B78SC9JM91WAKC','status',1.73573280472896385195e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732804.7288718}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
, search TEXT) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSEBH9FSKBFJ72S08TMA3','-','{"number": 1}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSEC01Q4AN2AVP0MAPZ2C','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSEC273W4Q81HY30GRJCZ','-','{"size": 10}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSEC8NDKRQJ13XMMTG84M','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSEC92MEF8HFMBQYTH090','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSF04W7PK11VK666Z015Z','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSF0X05YZ4MAFXABCF106','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSF18CS77SR0CR9PAKN0N','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSF2H8JR76TTPTYEHCV3G','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSF34PQQTEFFSA7SKHH24','-','{"number": 10, "seconds": 60}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSF370359SFYJD9JQKEGS','-','{"number":10,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSF3AJEVF0REAHM5XKGZ9','-','{"number":11,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSF3RZ1B78SC9JM91WAKC','-','{"number": 3}',NULL,NULL);
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
, lease_seconds REAL, loss_record TEXT, overdue_at REAL, webhook TEXT);
INSERT INTO "jobs" VALUES(1,'01JGGVSEBH9FSKBFJ72S08TMA3','work','default',1.73573280395314359669e+09,1.73573280432049441334e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280412154340741e+09,NULL,NULL,1.73573280432049441334e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732804.2963314,"finished_at":1735732804.3002706},{"name":"second","status":"DONE","started_at":1735732804.3141909,"finished_at":1735732804.3141909}]',NULL,NULL,NULL,NULL,'0eaa422e035d73262162bf5eb12fd81a',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSEC01Q4AN2AVP0MAPZ2C','half','default',1.73573280396839952472e+09,1.73573280459298014645e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280427952599523e+09,NULL,NULL,1.73573280459298014645e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"ae2108a974b6dec4820a2979f86cc612","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'ae2108a974b6dec4820a2979f86cc612',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSEC273W4Q81HY30GRJCZ','paint','default',1.73573280397078132629e+09,1.73573280434329533573e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280432049441334e+09,NULL,NULL,1.73573280434329533573e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSEC273W4Q81HY30GRJCZ/1.60282102/picture.bin"}]',NULL,NULL,NULL,'bc722d596c557b146124856f41a18f02',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSEC8NDKRQJ13XMMTG84M','fail','default',1.73573280397611117362e+09,1.73573280434805250161e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280434329533573e+09,NULL,NULL,1.73573280434805250161e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"58f3b3ddd2f7152e1884f0ddf154e076"}',NULL,NULL,NULL,NULL,NULL,NULL,'58f3b3ddd2f7152e1884f0ddf154e076',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSEC92MEF8HFMBQYTH090','work','default',1.73573280397795581819e+09,1.73573280436818575857e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280434805250161e+09,NULL,NULL,1.73573280436818575857e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732804.357218,"finished_at":1735732804.357218},{"name":"second","status":"DONE","started_at":1735732804.362403,"finished_at":1735732804.362403}]',NULL,NULL,NULL,NULL,'b373927f12856824083df422b7fbcc1c',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSF04W7PK11VK666Z015Z','heal','default',1.73573280461205840113e+09,1.73573280462320208555e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573325572666811939e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280461529254911e+09,1.73573325572666811939e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"8842fc74103bb9d6b0163952cdb7d821"}',NULL,NULL,NULL,NULL,NULL,NULL,'8842fc74103bb9d6b0163952cdb7d821',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSF0X05YZ4MAFXABCF106','work','default',1.73573280463744902607e+09,1.73573280463744902607e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'8e236db9705efd6cdc27e84b34929315',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSF18CS77SR0CR9PAKN0N','work','default',1.73573280464837527274e+09,1.73573280466124534602e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280466124534602e+09,1.73573280466124534602e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'e5ae66372ca98054d6eba5eae3960fc9',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSF2H8JR76TTPTYEHCV3G','rest','other',1.73573280468909406665e+09,1.73573280468909406665e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280468909406665e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'949bff5326850d0b42d3b764d60cb45d',1,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSF34PQQTEFFSA7SKHH24','family','default',1.73573280470821142201e+09,1.73573280471789383886e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280470840573316e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSF370359SFYJD9JQKEGS","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSF3AJEVF0REAHM5XKGZ9","kind":"work","key":"work#2","status":null}]','["01JGGVSF370359SFYJD9JQKEGS","01JGGVSF3AJEVF0REAHM5XKGZ9"]','bb8443b3239463114b8a2d7e0cf0f7c5',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSF370359SFYJD9JQKEGS','work','default',1.73573280471423244475e+09,1.73573280471636891362e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:15952',1735732834.71438,1735732804.71438,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732804.716369,"finished_at":1735732804.716369}]',NULL,'01JGGVSF34PQQTEFFSA7SKHH24',NULL,NULL,'bb8443b3239463114b8a2d7e0cf0f7c5',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSF3AJEVF0REAHM5XKGZ9','work','default',1.73573280471591091158e+09,1.73573280471979141236e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:15952',1.73573283471789383894e+09,1.73573280471789383886e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732804.7197914,"finished_at":1735732804.7197914}]',NULL,'01JGGVSF34PQQTEFFSA7SKHH24',NULL,NULL,'bb8443b3239463114b8a2d7e0cf0f7c5',0,30.0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSF3RZ1B78SC9JM91WAKC','work','default',1.7357328047288718224e+09,1.7357328047288718224e+09,'-','PENDING',1,1,0,NULL,NULL,1.7357328047288718224e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'924adc468ece6cd1da8fda86d2f9cc13',1,NULL,NULL,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSEC92MEF8HFMBQYTH090',1.73573280397819471355e+09);
CREATE TABLE log_state (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "log_state" VALUES('epoch','3544f452');
INSERT INTO "log_state" VALUES('floor','0');
CREATE TABLE queues (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
INSERT INTO "queues" VALUES('-','other',1);
CREATE TABLE records (
  tenant TEXT NOT NULL,
  collection TEXT NOT NULL,
  name TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (tenant, collection, name)
) WITHOUT ROWID;
CREATE TABLE rollups (
  tenant TEXT NOT NULL,
  span INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (tenant, span, at, kind, queue, name)
) WITHOUT ROWID;
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','failed:BROKEN',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','run.10',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','wait.35',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','partial',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','run.34',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','wait.34',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','wait.7',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','done',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','run.19',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','wait.34',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'rest','other','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','cancelled',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','done',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.18',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.31',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','started',4);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:first',3);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:second',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.8:first',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','submitted',7);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.30',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.35',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.4',1);
CREATE TABLE search_backfill (after TEXT NOT NULL, last TEXT NOT NULL);
CREATE TABLE search_terms (
  tenant TEXT NOT NULL,
  value TEXT NOT NULL,
  field TEXT NOT NULL, -- label.KEY, step or input.PATH
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  job_id TEXT NOT NULL,
  PRIMARY KEY (tenant, value, field, kind, queue, job_id)
) WITHOUT ROWID;
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSEC92MEF8HFMBQYTH090');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSF0X05YZ4MAFXABCF106');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSF18CS77SR0CR9PAKN0N');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSEBH9FSKBFJ72S08TMA3');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSEC92MEF8HFMBQYTH090');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSF370359SFYJD9JQKEGS');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSF3AJEVF0REAHM5XKGZ9');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSEBH9FSKBFJ72S08TMA3');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSEC92MEF8HFMBQYTH090');
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  result TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES('01JGGVSEBH9FSKBFJ72S08TMA3','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280430027055741e+09);
INSERT INTO "steps" VALUES('01JGGVSEBH9FSKBFJ72S08TMA3','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280431419086451e+09);
INSERT INTO "steps" VALUES('01JGGVSEC92MEF8HFMBQYTH090','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280435721802707e+09);
INSERT INTO "steps" VALUES('01JGGVSEC92MEF8HFMBQYTH090','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280436240291596e+09);
INSERT INTO "steps" VALUES('01JGGVSF370359SFYJD9JQKEGS','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280471636891362e+09);
INSERT INTO "steps" VALUES('01JGGVSF3AJEVF0REAHM5XKGZ9','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280471979141236e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('86b09b74e30c69871ee487c657b19a54');
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
INSERT INTO "uploads" VALUES('01JGGVSEAW9E7CERW5HCWHMV85','-','DONE','host',10,1.73573280393488931653e+09,4.73573280393488883982e+09,'{"id":"01JGGVSEAW9E7CERW5HCWHMV85","way":"tus","name":"file","created_at":1735732803.9327638,"updated_at":1735732803.9348893,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732803.934889,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSEAW9E7CERW5HCWHMV85/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSEBC0D3CYPYDJWGDE3Z9','-','UPLOADING','host',10,1.73573280395018124584e+09,4.73573280394953155525e+09,'{"id":"01JGGVSEBC0D3CYPYDJWGDE3Z9","way":"tus","name":"file","created_at":1735732803.948061,"updated_at":1735732803.9501812,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732803.949532,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,10);
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0 AND due IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';
CREATE INDEX upload_uses_job ON upload_uses (job_id);
CREATE INDEX events_job ON events (tenant, job_id, id);
CREATE INDEX events_tenant ON events (tenant, id);
CREATE INDEX events_kept ON events (at) WHERE type IN ('deleted', 'queue');
CREATE INDEX jobs_facets ON jobs (tenant, status, kind, queue, id);
CREATE INDEX jobs_code ON jobs (tenant, json_extract(error, '$.code'), status, kind, queue, id) WHERE error IS NOT NULL;
CREATE INDEX jobs_longest ON jobs (tenant, status, kind, queue, finished_at - started_at, id) WHERE finished_at - started_at >= 0.01;
CREATE INDEX uploads_tenant ON uploads (tenant, status, id);
CREATE INDEX jobs_claim ON jobs (queue, kind, tenant,
  (CASE WHEN run > 1 THEN due ELSE max(created_at, coalesce(run_at, 0)) END - 3600.0 * priority)) WHERE ready = 1;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',45);
COMMIT;
