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
INSERT INTO "events" VALUES(1,'-','01JGGVSC3QET7APXG7S9AMYDJG','status',1.7357328016560115814e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.6558564}');
INSERT INTO "events" VALUES(2,'-','01JGGVSC43QBYVB0E739FKXR43','status',1.7357328016681165695e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.6679282}');
INSERT INTO "events" VALUES(3,'-','01JGGVSC47GHX72XECMGE26S34','status',1.73573280167202782632e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.6719267}');
INSERT INTO "events" VALUES(4,'-','01JGGVSC493PCKMVHJ1YKAJVQZ','status',1.7357328016738417149e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.6737313}');
INSERT INTO "events" VALUES(5,'-','01JGGVSC4BZ46TB581MSE8HRB3','status',1.73573280167558741571e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732801.6752815}');
INSERT INTO "events" VALUES(6,'-','01JGGVSC3QET7APXG7S9AMYDJG','status',1.73573280175624012951e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26701","waited":0.10038375854492188}');
INSERT INTO "events" VALUES(7,'-','01JGGVSC43QBYVB0E739FKXR43','status',1.73573280190980863569e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26701","waited":0.2418804168701172}');
INSERT INTO "events" VALUES(8,'-','01JGGVSC3QET7APXG7S9AMYDJG','step',1.73573280195525646209e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSC3QET7APXG7S9AMYDJG','step',1.73573280195525646209e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(10,'-','01JGGVSC3QET7APXG7S9AMYDJG','step',1.73573280195928215984e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSC3QET7APXG7S9AMYDJG','step',1.73573280195928215984e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(12,'-','01JGGVSC3QET7APXG7S9AMYDJG','status',1.73573280196419906613e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.20795893669128418}');
INSERT INTO "events" VALUES(13,'-','01JGGVSC47GHX72XECMGE26S34','status',1.73573280196419906613e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26701","waited":0.29227232933044434}');
INSERT INTO "events" VALUES(14,'-','01JGGVSC47GHX72XECMGE26S34','status',1.73573280199589252475e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.031693458557128906}');
INSERT INTO "events" VALUES(15,'-','01JGGVSC493PCKMVHJ1YKAJVQZ','status',1.73573280199589252475e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26701","waited":0.3221611976623535}');
INSERT INTO "events" VALUES(16,'-','01JGGVSC493PCKMVHJ1YKAJVQZ','status',1.73573280200374436381e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"a0f3657f35c04b87afa59a1f2159febd"},"seconds":0.007851839065551758}');
INSERT INTO "events" VALUES(17,'-','01JGGVSC4BZ46TB581MSE8HRB3','status',1.73573280200374436381e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26701","waited":0.3284628391265869}');
INSERT INTO "events" VALUES(18,'-','01JGGVSC4BZ46TB581MSE8HRB3','step',1.73573280200655555727e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(19,'-','01JGGVSC4BZ46TB581MSE8HRB3','step',1.73573280200997471806e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"first","status":"DONE"},"seconds":0.003419160842895508}');
INSERT INTO "events" VALUES(20,'-','01JGGVSC4BZ46TB581MSE8HRB3','step',1.73573280201622629163e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(21,'-','01JGGVSC4BZ46TB581MSE8HRB3','step',1.73573280201622629163e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(22,'-','01JGGVSC4BZ46TB581MSE8HRB3','status',1.73573280202008509631e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.01634073257446289}');
INSERT INTO "events" VALUES(23,'-','01JGGVSC43QBYVB0E739FKXR43','status',1.73573280213636279103e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"ca562cd2b356c196fe4fba6bfa6293ae","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.22655415534973145}');
INSERT INTO "events" VALUES(24,'-','01JGGVSCK83AZ61WDESVGNV6VS','status',1.73573280215225601193e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732802.1520243}');
INSERT INTO "events" VALUES(25,'-','01JGGVSCK83AZ61WDESVGNV6VS','status',1.73573280215225601193e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26701","waited":0.00023174285888671875}');
INSERT INTO "events" VALUES(26,'-','01JGGVSCK83AZ61WDESVGNV6VS','status',1.73573280215795207022e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735733094.8407168,"nextAttemptAt":1735733094.8407168,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"b14e1e0b775fd908bdddae900639234d"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSCKT249Y4XEYN786X6GQ','status',1.73573280217078781129e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSCKXCVK10YA09P2R3BQV','status',1.73573280217410087582e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSCKXCVK10YA09P2R3BQV','status',1.73573280217973256117e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','01JGGVSCMBZNT639GKD96B8S2Q','status',1.73573280218839430802e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732802.1877198}');
INSERT INTO "events" VALUES(31,'-','01JGGVSCMHW9DXAYDSRHV6R24J','status',1.73573280219349479675e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732802.1932724}');
INSERT INTO "events" VALUES(32,'-','01JGGVSCMHW9DXAYDSRHV6R24J','status',1.73573280219349479675e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26701","waited":0.0002224445343017578}');
INSERT INTO "events" VALUES(33,'-','01JGGVSCMMJ1RQTRJHHWC39SVV','status',1.7357328021993134022e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732802.199184}');
INSERT INTO "events" VALUES(34,'-','01JGGVSCMHW9DXAYDSRHV6R24J','status',1.7357328021993134022e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26701"}');
INSERT INTO "events" VALUES(35,'-','01JGGVSCMMJ1RQTRJHHWC39SVV','status',1.7357328021993134022e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26701","waited":0.00012946128845214844}');
INSERT INTO "events" VALUES(36,'-','01JGGVSCMMEHG5FJR07YAEQ8PY','status',1.73573280220099091528e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732802.2003262}');
INSERT INTO "events" VALUES(37,'-','01JGGVSCMHW9DXAYDSRHV6R24J','status',1.73573280220099091528e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26701"}');
INSERT INTO "events" VALUES(38,'-','01JGGVSCMMJ1RQTRJHHWC39SVV','step',1.73573280220099091528e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(39,'-','01JGGVSCMMJ1RQTRJHHWC39SVV','step',1.73573280220099091528e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(40,'-','01JGGVSCMHW9DXAYDSRHV6R24J','status',1.73573280220283603664e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(41,'-','01JGGVSCMMEHG5FJR07YAEQ8PY','status',1.73573280220283603664e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:26701","waited":0.0025098323822021484}');
INSERT INTO "events" VALUES(42,'-','01JGGVSCMMEHG5FJR07YAEQ8PY','step',1.73573280220491480826e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(43,'-','01JGGVSCMMEHG5FJR07YAEQ8PY','step',1.73573280220491480826e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:26701","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(44,'-','01JGGVSCNG3BT9TGHDDPRE0FAM','status',1735732802.22412,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"due":1735732802.2240171}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSC3QET7APXG7S9AMYDJG','-','{"number": 1}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC43QBYVB0E739FKXR43','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC47GHX72XECMGE26S34','-','{"size": 10}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC493PCKMVHJ1YKAJVQZ','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSC4BZ46TB581MSE8HRB3','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSCK83AZ61WDESVGNV6VS','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSCKT249Y4XEYN786X6GQ','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSCKXCVK10YA09P2R3BQV','-','{"number": 2}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSCMBZNT639GKD96B8S2Q','-','{}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSCMHW9DXAYDSRHV6R24J','-','{"number": 10, "seconds": 60}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSCMMEHG5FJR07YAEQ8PY','-','{"number":11,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSCMMJ1RQTRJHHWC39SVV','-','{"number":10,"seconds":60.0}',NULL);
INSERT INTO "inputs" VALUES('01JGGVSCNG3BT9TGHDDPRE0FAM','-','{"number": 3}',NULL);
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
INSERT INTO "jobs" VALUES(1,'01JGGVSC3QET7APXG7S9AMYDJG','work','default',1.73573280165585637092e+09,1.73573280196419906613e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280175624012951e+09,NULL,NULL,1.73573280196419906613e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732801.9552565,"finished_at":1735732801.9552565},{"name":"second","status":"DONE","started_at":1735732801.9592822,"finished_at":1735732801.9592822}]',NULL,NULL,NULL,NULL,'ec2a11444b67cb1acb0b617f0a1808f7',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSC43QBYVB0E739FKXR43','half','default',1.73573280166792821887e+09,1.73573280213636279103e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280190980863569e+09,NULL,NULL,1.73573280213636279103e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"ca562cd2b356c196fe4fba6bfa6293ae","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'ca562cd2b356c196fe4fba6bfa6293ae',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSC47GHX72XECMGE26S34','paint','default',1.73573280167192673687e+09,1.73573280199589252475e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280196419906613e+09,NULL,NULL,1.73573280199589252475e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSC47GHX72XECMGE26S34/1.89085f97/picture.bin"}]',NULL,NULL,NULL,'b9dae06eb5641689593aa69cc108235f',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSC493PCKMVHJ1YKAJVQZ','fail','default',1.73573280167373132708e+09,1.73573280200374436381e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280199589252475e+09,NULL,NULL,1.73573280200374436381e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"a0f3657f35c04b87afa59a1f2159febd"}',NULL,NULL,NULL,NULL,NULL,NULL,'a0f3657f35c04b87afa59a1f2159febd',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSC4BZ46TB581MSE8HRB3','work','default',1.73573280167528152468e+09,1.73573280202008509631e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280200374436381e+09,NULL,NULL,1.73573280202008509631e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732802.0065556,"finished_at":1735732802.0099747},{"name":"second","status":"DONE","started_at":1735732802.0162263,"finished_at":1735732802.0162263}]',NULL,NULL,NULL,NULL,'523f226ce0b546d4613b1286ac994d53',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSCK83AZ61WDESVGNV6VS','heal','default',1.73573280215202426909e+09,1.73573280215795207022e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573309484071683882e+09,NULL,1,2,1,0,1,NULL,NULL,1.73573280215225601193e+09,1.73573309484071683882e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"b14e1e0b775fd908bdddae900639234d"}',NULL,NULL,NULL,NULL,NULL,NULL,'b14e1e0b775fd908bdddae900639234d',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSCKT249Y4XEYN786X6GQ','work','default',1.73573280217065691946e+09,1.73573280217065691946e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'e08393a949c98134981c6885b0ee19cc',0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSCKXCVK10YA09P2R3BQV','work','default',1.73573280217369365699e+09,1.73573280217973256117e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280217973256117e+09,1.73573280217973256117e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'e526bff21538d0793dfea7eb1d54d477',0,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSCMBZNT639GKD96B8S2Q','rest','other',1.73573280218771982194e+09,1.73573280218771982194e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280218771982194e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'6d35ef6b3652630aa920372482854a12',1,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSCMHW9DXAYDSRHV6R24J','family','default',1.73573280219327235216e+09,1.73573280220283603664e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280219349479675e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSCMMJ1RQTRJHHWC39SVV","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSCMMEHG5FJR07YAEQ8PY","kind":"work","key":"work#2","status":null}]','["01JGGVSCMMJ1RQTRJHHWC39SVV","01JGGVSCMMEHG5FJR07YAEQ8PY"]','29a62bf3497ab891383795f5ccf0a596',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSCMMJ1RQTRJHHWC39SVV','work','default',1.73573280219918394092e+09,1.73573280220099091528e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:26701',1.73573283219931340216e+09,1.7357328021993134022e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732802.200991,"finished_at":1735732802.200991}]',NULL,'01JGGVSCMHW9DXAYDSRHV6R24J',NULL,NULL,'29a62bf3497ab891383795f5ccf0a596',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSCMMEHG5FJR07YAEQ8PY','work','default',1.73573280220032620429e+09,1.73573280220491480826e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:26701',1.73573283220283603673e+09,1.73573280220283603664e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732802.2049148,"finished_at":1735732802.2049148}]',NULL,'01JGGVSCMHW9DXAYDSRHV6R24J',NULL,NULL,'29a62bf3497ab891383795f5ccf0a596',0,30.0,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSCNG3BT9TGHDDPRE0FAM','work','default',1.73573280222401714325e+09,1.73573280222401714325e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280222401714325e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'05370036332771026d2a9f53f496eb01',1,NULL,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSC4BZ46TB581MSE8HRB3',1.73573280167558741571e+09);
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
INSERT INTO "steps" VALUES('01JGGVSC3QET7APXG7S9AMYDJG','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280195525646209e+09);
INSERT INTO "steps" VALUES('01JGGVSC3QET7APXG7S9AMYDJG','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280195928215984e+09);
INSERT INTO "steps" VALUES('01JGGVSC4BZ46TB581MSE8HRB3','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280200997471806e+09);
INSERT INTO "steps" VALUES('01JGGVSC4BZ46TB581MSE8HRB3','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280201622629163e+09);
INSERT INTO "steps" VALUES('01JGGVSCMMEHG5FJR07YAEQ8PY','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280220491480826e+09);
INSERT INTO "steps" VALUES('01JGGVSCMMJ1RQTRJHHWC39SVV','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280220099091528e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('1e2ac5e19fca5714fa7d35dafda8644e');
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
INSERT INTO "uploads" VALUES('01JGGVSC294F6EN4GGT2PGSXAY','-','DONE','host',10,1.73573280162844109531e+09,4.73573280162844085713e+09,'{"id":"01JGGVSC294F6EN4GGT2PGSXAY","way":"tus","name":"file","created_at":1735732801.6092336,"updated_at":1735732801.628441,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732801.628441,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSC294F6EN4GGT2PGSXAY/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSC379BK3VZ7RDHDJYAYH','-','UPLOADING','host',10,1.7357328016485147476e+09,4.73573280164842891695e+09,'{"id":"01JGGVSC379BK3VZ7RDHDJYAYH","way":"tus","name":"file","created_at":1735732801.6393638,"updated_at":1735732801.6485147,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732801.648429,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null}',NULL,10);
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
CREATE INDEX events_job ON events (job_id, id);
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';
CREATE INDEX upload_uses_job ON upload_uses (job_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',44);
COMMIT;
